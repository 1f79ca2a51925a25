"""Keras on this backend: what training gives, and that a memory limit changes nothing of it."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

os.environ["KERAS_BACKEND"] = "plimsoll"
keras = pytest.importorskip("keras")

import programs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def test_the_backend_is_ours():
    assert keras.config.backend() == "plimsoll"


@pytest.mark.parametrize("name", list(programs.PROGRAMS))
def test_losses_are_those_of_tensorflow(name):
    fixture = json.loads((HERE / "fixtures" / "keras_tensorflow.json").read_text())
    np.testing.assert_allclose(programs.losses(keras, name), fixture["losses"][name], rtol=1e-4, atol=1e-4)


def run(code, **environment):
    """What a Python of its own prints."""
    environment = {**os.environ, "KERAS_BACKEND": "plimsoll", "PYTHONPATH": str(HERE), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_plimsoll_imports_no_keras():
    out = run("import sys, plimsoll; print([m for m in ('keras', 'scipy', 'jax', 'tensorflow') if m in sys.modules])")
    assert out == "[]"


def test_importing_keras_imports_neither_scipy_nor_jax():
    out = run("import sys, keras; print([m for m in ('scipy', 'jax', 'tensorflow', 'torch') if m in sys.modules])")
    assert out == "[]"


def test_another_version_of_keras_is_refused():
    from keras_plimsoll import hook

    with pytest.raises(ImportError, match="3.15.x and keras 3.99.0 is installed"):
        hook.check_version("3.99.0")


def test_an_unknown_dispatch_is_refused():
    import ast

    from keras_plimsoll import dispatch

    with pytest.raises(ImportError, match="0 places instead of one"):
        dispatch.add_branch(ast.parse("x = 1"), "keras.src.backend", "plimsoll", "pass")


def test_an_overridden_train_step_is_traced():
    calls = []

    class Model(keras.Model):
        def train_step(self, data):
            calls.append(1)
            return super().train_step(data)

    inputs = keras.Input((4,))
    model = Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    x = np.ones((64, 4), "float32")
    model.fit(x, x[:, :1], batch_size=16, epochs=3, verbose=0)
    assert len(calls) == 1


def test_a_step_that_looks_at_values_runs_all_the_same():
    class Model(keras.Model):
        def train_step(self, data):
            logs = super().train_step(data)
            assert float(logs["loss"]) >= 0.0
            return logs

    inputs = keras.Input((4,))
    model = Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    x = np.ones((32, 4), "float32")
    with pytest.warns(UserWarning, match="operation by operation"):
        history = model.fit(x, x[:, :1], batch_size=16, epochs=3, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_old_arguments_of_fit_are_accepted_with_a_notice():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((32, 4), "float32")
    with pytest.warns(UserWarning, match="`use_multiprocessing`, `workers` of `fit` have no effect"):
        model.fit(x, x[:, :1], verbose=0, workers=4, use_multiprocessing=True)
    with pytest.raises(ValueError, match="not recognized"):
        model.fit(x, x[:, :1], verbose=0, worker=4)


def test_large_float64_data_is_not_copied_whole():
    """40 MB of doubles: a cast up front would take 20 MB more."""
    code = """
import numpy as np, keras, resource
model = keras.Sequential([keras.Input((500,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.zeros((10000, 500)); y = np.zeros((10000, 1))
model.fit(x[:64], y[:64], verbose=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.fit(x, y, batch_size=64, verbose=0, shuffle=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    assert int(run(code)) < 12_000


def test_mixed_precision_trains():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1, dtype="float32")])
        model.compile("adam", "mse")
        rng = np.random.default_rng(0)
        x = rng.standard_normal((128, 8)).astype("float32")
        history = model.fit(x, x[:, :1], epochs=5, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_notebooks_show_histories_as_tables():
    history = keras.callbacks.History()
    history.epoch = list(range(30))
    history.history = {"loss": [1 / (i + 1) for i in range(30)], "val_<b>": [0.5] * 3}
    table = history._repr_html_()
    assert table.count("<tr>") == 1 + 13 and "<td>30</td><td>0.03333</td><td></td>" in table and "val_&lt;b&gt;" in table


LIMITED = """
import hashlib, json, sys
import numpy as np, keras
from plimsoll import _engine as engine

layers = keras.layers
keras.utils.set_random_seed(3)
rng = np.random.default_rng(0)
if sys.argv[1] == "mlp":
    model = keras.Sequential([keras.Input((256,))] + [layers.Dense(512, activation="relu") for _ in range(6)] + [layers.Dense(1)])
    x = rng.standard_normal((16384, 256), dtype=np.float32)
else:
    blocks = [b for _ in range(4) for b in (layers.Conv2D(16, 3, padding="same"), layers.BatchNormalization(), layers.ReLU())]
    model = keras.Sequential([keras.Input((24, 24, 3)), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(1)])
    x = rng.standard_normal((1024, 24, 24, 3), dtype=np.float32)
y = rng.standard_normal((len(x), 1), dtype=np.float32)
model.compile("adam", "mse")
if sys.argv[2] != "free":
    engine.set_memory_limit(engine.memory_info()["current"] + int(sys.argv[2]))
model.fit(x, y, batch_size=len(x) // 2, epochs=2, verbose=0)
plan = model.plan(x, y, batch_size=len(x) // 2)
digest = hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())).hexdigest()
print(json.dumps({"digest": digest, "states": plan.to_dict()["states"], "arena": plan.to_dict()["arena"], "kept": plan.kept, "html": plan._repr_html_()}))
"""


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_limit_changes_no_bit_of_the_weights(name):
    def trained(how):
        environment = {**os.environ, "KERAS_BACKEND": "plimsoll"}
        command = [sys.executable, "-c", LIMITED, name, how]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.strip().splitlines()[-1])

    free = trained("free")
    # Half of what the values of a step take, and what Python, the batch and the library for matrix products grow by.
    limited = trained(str(free["states"] + free["arena"] // 2 + (64 << 20)))
    assert limited["arena"] < 0.7 * free["arena"]
    assert limited["digest"] == free["digest"]
    assert limited["html"].startswith("<table>")
