"""A pytest plugin for running Keras' own tests, which its wheel carries, against this backend.

One test module chooses a trainer by the backend's name and refuses others; it gets a branch of ours as Keras itself does
(pytest must then leave the import to Python: `--assert=plain`). Tests that train with a loop written for each backend run the
one for TensorFlow, with `import tensorflow` meaning this package. The wheel leaves out the repository's `conftest.py`; the markers it declares are declared here. Tests named in
`keras_excluded.txt` are left out, each with its reason there. With `KERAS_JUDGE_REPORT` set, the outcome of every test is
written to that file as JSON.
"""

import fnmatch
import json
import os
import pathlib
import sys
import types
from unittest import mock

import pytest

from keras_plimsoll import hook

hook.BRANCHES["keras.src.trainers.trainer_test"] = "from keras_plimsoll.src.trainer import PlimsollTrainer as Trainer"

# Tests that know training loops for Keras' own backends and no others.
LOOPS = ("test_quantize_float8",)

# Some test files import this from the repository's `conftest.py`, which the wheel leaves out.
conftest = types.ModuleType("conftest")
conftest.skip_if_backend = lambda given_backend, reason: pytest.mark.skipif(given_backend == hook.NAME, reason=reason)
sys.modules["conftest"] = conftest

EXCLUDED = pathlib.Path(__file__).with_name("keras_excluded.txt")


def excluded():
    """Patterns of test names, and why each is left out."""
    patterns = {}
    for line in EXCLUDED.read_text().splitlines():
        name, _, reason = line.partition("#")
        if name.strip():
            patterns[name.strip()] = reason.strip()
    return patterns


def short_name(item):
    """`layers/core/dense_test.py::DenseTest::test_x`, wherever Keras is installed and pytest was started."""
    return "::".join([str(item.path).split("keras/src/")[-1], *item.nodeid.split("::")[1:]])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if getattr(item, "originalname", None) not in LOOPS:
        return (yield)
    import plimsoll

    keras_backend = item.module.backend

    class Told:
        backend = staticmethod(lambda: "tensorflow")
        __getattr__ = staticmethod(lambda name: getattr(keras_backend, name))

    with mock.patch.dict(sys.modules, tensorflow=plimsoll), mock.patch.object(item.module, "backend", Told()):
        return (yield)


def pytest_configure(config):
    for marker in ("requires_trainable_backend", "multi_device", "large", "openvino_backend"):
        config.addinivalue_line("markers", f"{marker}: as in Keras' own configuration")
    config.outcomes = {}


def pytest_collection_modifyitems(config, items):
    for module in {item.module for item in items if hasattr(item, "module")}:
        # This data set looks up a device in a table of Keras' own backends; everything else about it is as it was.
        if hasattr(module, "TestPyDataset"):
            ops = module.ops
            module.TestPyDataset.__getitem__ = lambda self, i: (ops.ones((5, 4)), ops.zeros((5, 3)))
    patterns = list(excluded())
    left, out = [], []
    for item in items:
        name = _names[item.nodeid] = short_name(item)
        (out if any(fnmatch.fnmatch(name, p) for p in patterns) else left).append(item)
    items[:] = left
    config.hook.pytest_deselected(items=out)
    config.outcomes["excluded"] = [short_name(item) for item in out]


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _outcomes[_names[report.nodeid]] = report.outcome


def pytest_collectreport(report):
    if report.failed:
        _outcomes[report.nodeid.split("keras/src/")[-1]] = "not collected"


_outcomes = {}
_names = {}


def pytest_sessionfinish(session):
    path = os.environ.get("KERAS_JUDGE_REPORT")
    if path:
        found = {"outcomes": _outcomes, "excluded": session.config.outcomes.get("excluded", [])}
        pathlib.Path(path).write_text(json.dumps(found))
