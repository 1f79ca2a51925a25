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
import types


class _Loader(importlib.abc.Loader):
    """Gives a module that exists under another name."""

    def __init__(self, found):
        self._found = found
        # The import system writes the new name into what it is given, which must not happen to the real module.
        self._kept = {name: getattr(found, name, None) for name in ("__spec__", "__loader__", "__package__", "__name__")}

    def create_module(self, spec):
        return self._found

    def exec_module(self, module):
        for name, value in self._kept.items():
            setattr(module, name, value)


class Alias(importlib.abc.MetaPathFinder):
    """Finds `tensorflow` and its parts in this package and in Keras."""

    def find_spec(self, fullname, path=None, target=None):
        parts = fullname.split(".")
        if parts[0] != "tensorflow":
            return None
        try:
            found = resolve(parts[1:])
        except (ImportError, AttributeError) as error:
            raise ModuleNotFoundError(_missing(parts), name=fullname) from error
        if not isinstance(found, types.ModuleType) and (not hasattr(found, "__dict__") or isinstance(found, type)):
            raise ModuleNotFoundError(f"{fullname!r} is not a module: write `from {'.'.join(parts[:-1])} import {parts[-1]}`", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, _Loader(found), is_package=True)


def _missing(parts):
    name = ".".join(parts)
    if parts[1:2] == ["python"] or parts[1:2] == ["core"]:
        return f"{name!r} is private to TensorFlow: only its public names are here (`plimsoll.run` lets `import tensorflow` mean Plimsoll)"
    return f"{name!r} is not among the parts of TensorFlow that Plimsoll has (`plimsoll.run` lets `import tensorflow` mean Plimsoll; see docs/python.md)"


def resolve(parts):
    """The object that `tensorflow.<parts>` names."""
    import plimsoll

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
    """The command. What follows the script is the script's, but for `--memory-limit`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    limit = module = script = None
    rest = []
    while given:
        word = given.pop(0)
        named = script is not None or module is not None
        if word in ("-h", "--help") and not named:
            print(USAGE)
            return 0
        if word == "--memory-limit" and given:
            limit = given.pop(0)
        elif word.startswith("--memory-limit="):
            limit = word.partition("=")[2]
        elif word == "-m" and given and not named:
            module = given.pop(0)
        elif not named and word.startswith("-"):
            print(f"{word} is not known\n{USAGE}", file=sys.stderr)
            return 2
        elif not named:
            script = word
        else:
            rest.append(word)
    if script is None and module is None:
        print(USAGE, file=sys.stderr)
        return 2
    if script is not None and not os.path.isfile(script):
        print(f"there is no file '{script}'", file=sys.stderr)
        return 2
    import plimsoll

    if limit:
        try:
            plimsoll.set_memory_limit(limit)
        except ValueError as error:
            print(f"--memory-limit: {error}", file=sys.stderr)
            return 2
    install()
    if module is not None:
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    return run_script(script, rest)


def run_script(path, arguments):
    """Runs a file as `python path arguments...` would: as `__main__`, with its folder first on the path."""
    sys.argv = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    # Not `runpy`, whose module is gone when functions registered for the end run, and whose frames stand in tracebacks.
    main_module = types.ModuleType("__main__")
    main_module.__file__ = path
    main_module.__builtins__ = __builtins__
    sys.modules["__main__"] = main_module
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
        exec(code, main_module.__dict__)
    except Exception as error:
        # The user's lines alone.
        trace = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


if __name__ == "__main__":
    # Under its real name: `__main__` is the script's.
    from plimsoll.run import main as command

    sys.exit(command())
