"""Makes `KERAS_BACKEND=plimsoll` known to a released Keras.

Keras 3.15 chooses its backend in `if backend() == ...: ... elif ...: ... else: raise` chains in five modules, and falls
through in two more. `install()` puts a finder before the ordinary ones that lets those modules load as always, except
that the syntax tree gets one more branch, and that a function which Keras composes for all backends is replaced by ours.
Nothing else in Keras changes, no file is written, and a Keras of another version, or a module in which the expected
chain or function is not found, is refused with an ImportError that says so.

Installed with the package, `keras_plimsoll.pth` calls `install()` at the start of Python, which costs one entry in
`sys.meta_path`; it acts only when Keras is imported with this backend chosen. Keras' own plug-in mechanism makes this
file unnecessary once it is released: `keras_plimsoll.src` is laid out for it.
"""

import importlib.machinery
import os
import sys

NAME = "plimsoll"
SUPPORTED = (3, 15)

# Module -> the statements of our branch, which comes before the last arm of the chain.
BRANCHES = {
    "keras.src.backend": """
from keras_plimsoll.src import *
from keras_plimsoll.src.core import Variable as BackendVariable
distribution_lib = None
""",
    "keras.src.layers.layer": "from keras_plimsoll.src.layer import PlimsollLayer as BackendLayer",
    "keras.src.models.model": "from keras_plimsoll.src.trainer import PlimsollTrainer as Trainer",
    "keras.src.optimizers.optimizer": "from keras_plimsoll.src.optimizer import PlimsollOptimizer as BackendOptimizer",
    "keras.src.export.saved_model": (
        "from keras_plimsoll.src.export import PlimsollExportArchive as BackendSavedModelExportArchive"
    ),
}
# Module -> function or class -> where what takes its place is made of it: Keras composes it for all backends, or of TensorFlow.
WRAPPERS = {
    "keras.src.ops.nn": {"_layer_normalization": "keras_plimsoll.src.nn.layer_normalization"},
    "keras.src.callbacks.tensorboard": {
        "TensorBoard": "keras_plimsoll.src.tensorboard.callback",
        "keras_model_summary": "keras_plimsoll.src.tensorboard.model_summary",
    },
}
# Modules that make data sets by TensorFlow's names, on every backend: ours are those of `plimsoll`.
TENSORFLOW = {f"keras.src.utils.{name}" for name in ("dataset_utils", "image_dataset_utils", "text_dataset_utils", "timeseries_dataset_utils")}
_DYNAMIC = "keras.src.utils.backend_utils"


def install():
    """Adds the backend to Keras, should Keras be imported later on. Calling it again changes nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def check_version(version):
    """Refuses a Keras whose dispatch this file was not written for."""
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts != SUPPORTED:
        wanted = ".".join(map(str, SUPPORTED))
        raise ImportError(
            f"the plimsoll backend is written for keras {wanted}.x and keras {version} is installed; "
            f"install it with: pip install 'keras=={wanted}.*'"
        )


class _Finder:
    """Finds the dispatching modules of Keras where they are, and gives them a loader that adds our branch."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "keras" and _chosen():
            from importlib.metadata import version

            check_version(version("keras"))
            return None
        if not (fullname in BRANCHES or fullname in WRAPPERS or fullname in TENSORFLOW or fullname == _DYNAMIC):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader and _chosen():
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        import ast

        from keras_plimsoll import dispatch

        # From the source each time: a cached .pyc is that of the unchanged module and must stay so.
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        if fullname == _DYNAMIC:
            dispatch.add_dynamic(tree, _DYNAMIC, NAME)
        elif fullname in WRAPPERS:
            dispatch.add_wrappers(tree, fullname, WRAPPERS[fullname])
        elif fullname in TENSORFLOW:
            dispatch.add_tensorflow(tree, fullname)
        else:
            dispatch.add_branch(tree, fullname, NAME, BRANCHES[fullname])
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def _chosen():
    """Whether Keras is going to use this backend: its environment variable, else its configuration file."""
    chosen = os.environ.get("KERAS_BACKEND")
    if chosen:
        return chosen == NAME
    home = os.environ.get("KERAS_HOME") or os.path.join(os.path.expanduser("~"), ".keras")
    try:
        import json

        with open(os.path.join(home, "keras.json")) as file:
            return json.load(file).get("backend") == NAME
    except (OSError, ValueError, AttributeError):
        return False
