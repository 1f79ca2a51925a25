"""`python -m plimsoll.run script.py`: a TensorFlow program, unchanged, on this engine.

`import tensorflow`, and whatever is below it, means `plimsoll` in that process. Nothing of the kind happens without this
explicit choice.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import sys


class _Loader(importlib.abc.Loader):
    """Gives a module that exists under another name."""

    def __init__(self, find):
        self._find = find

    def create_module(self, spec):
        found = self._find()
        # The import system writes the new name into what it is given, which must not happen to the real module.
        self._kept = {name: getattr(found, name, None) for name in ("__spec__", "__loader__", "__package__", "__name__")}
        return found

    def exec_module(self, module):
        for name, value in self._kept.items():
            setattr(module, name, value)


class Alias(importlib.abc.MetaPathFinder):
    """Finds `tensorflow` and its parts in this package and in Keras."""

    def find_spec(self, fullname, path=None, target=None):
        parts = fullname.split(".")
        if parts[0] != "tensorflow":
            return None
        find = lambda: resolve(parts[1:])
        try:
            found = find()
        except (ImportError, AttributeError):
            return None
        if not hasattr(found, "__dict__") or isinstance(found, type):
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(find), is_package=True)


def resolve(parts):
    """The object that `tensorflow.<parts>` names."""
    import plimsoll

    if parts[:1] == ["python"]:
        raise ImportError("tensorflow.python is private to TensorFlow")
    if parts[:1] == ["keras"]:
        found = plimsoll.keras
        for i, part in enumerate(parts[1:], 1):
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(".".join(["keras", *parts[1 : i + 1]]))
        return found
    found = plimsoll
    for part in parts:
        found = getattr(found, part)
    return found


def install():
    """Lets `import tensorflow` mean this package from now on."""
    if "tensorflow" in sys.modules and sys.modules["tensorflow"].__name__ != "plimsoll":
        raise RuntimeError("TensorFlow itself is imported already")
    if not any(isinstance(finder, Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, Alias())


USAGE = "usage: python -m plimsoll.run [--memory-limit SIZE] (SCRIPT | -m MODULE) [ARGUMENTS...]"


def main(arguments=None):
    """The command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    limit = os.environ.get("PLIMSOLL_MEMORY_LIMIT")
    module = None
    script, rest = None, []
    while given:
        word = given.pop(0)
        if word in ("-h", "--help"):
            print(USAGE)
            return 0
        if word == "--memory-limit" and given:
            limit = given.pop(0)
        elif word.startswith("--memory-limit="):
            limit = word.partition("=")[2]
        elif script is None and module is None and word == "-m" and given:
            module, rest, given = given[0], given[1:], []
        elif script is None:
            script = word
        else:
            rest.append(word)
    if script is None and module is None:
        print(USAGE, file=sys.stderr)
        return 2
    import plimsoll

    if limit:
        plimsoll.set_memory_limit(limit)
    install()
    if module is not None:
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    sys.argv = [script, *rest]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0



if __name__ == "__main__":
    sys.exit(main())
