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


OPTIMIZERS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {"weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.5, "centered": True}),
    ("Adagrad", {}),
    ("Adadelta", {"learning_rate": 1.0}),
    ("Adamax", {"weight_decay": 0.01}),
    ("Lion", {}),
]


@pytest.mark.parametrize("name, options", OPTIMIZERS)
def test_an_optimizer_is_one_operation_and_does_what_keras_writes_out(name, options, monkeypatch):
    from keras_plimsoll.src import optimizer as ours

    def trained():
        values = np.random.default_rng(0).standard_normal((3, 7, 5)).astype("float32")
        variables = [keras.Variable(values[0]), keras.Variable(values[1, 0])]
        made = getattr(keras.optimizers, name)(**options)
        made.exclude_from_weight_decay([variables[1]])
        for i in range(3):
            made.apply_gradients([(values[2] * (i - 1.5), variables[0]), (values[2, 1] + i, variables[1])])
        return [v.numpy() for v in [*variables, *made.variables[2:]]]

    calls = []
    real = ours.engine.optimize
    monkeypatch.setattr(ours.engine, "optimize", lambda *args: calls.append(1) or real(*args))
    fused = trained()
    assert len(calls) == 6
    monkeypatch.setattr(ours, "_RULES", {})
    for a, b in zip(fused, trained(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("axis, shape", [(-1, (4, 6)), ([1, 2], (3, 2, 6)), (1, (3, 4, 5))])
def test_layer_normalization_is_that_of_keras(axis, shape):
    from keras.src.ops import nn

    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype("float32")
    sizes = [shape[i] for i in (axis if isinstance(axis, list) else [axis])]
    gamma, beta = rng.standard_normal((2, *sizes)).astype("float32")
    result = nn.layer_normalization(x, gamma, beta, axis, 1e-3)
    axes = tuple(axis) if isinstance(axis, list) else axis
    wide = [n if i in np.atleast_1d(np.arange(len(shape))[np.array(axis)]) else 1 for i, n in enumerate(shape)]
    centred = x - x.mean(axes, keepdims=True)
    wanted = centred / np.sqrt(x.var(axes, keepdims=True) + 1e-3) * gamma.reshape(wide) + beta.reshape(wide)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_a_data_set_trains_as_its_arrays_do():
    import plimsoll as tf
    from plimsoll import _keras_data

    _keras_data.install()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((203, 6)).astype("float32"), rng.standard_normal((203, 1)).astype("float32")

    def trained(*data, **options):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"])
        history = model.fit(*data, epochs=3, verbose=0, **options).history
        return history, model.get_weights()

    pipeline = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
    seen = []
    every = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    by_arrays, by_pipeline = trained(x, y, batch_size=10, shuffle=False), trained(pipeline)
    by_batch = trained(pipeline, callbacks=[every])
    assert seen == 3 * list(range(21))
    for other in (by_pipeline, by_batch):
        assert by_arrays[0] == other[0]
        assert all((a == b).all() for a, b in zip(by_arrays[1], other[1], strict=True))


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


def test_tensorboard_files_need_no_tensorflow(tmp_path):
    import plimsoll as tf

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="own")])
    model.compile("sgd", "mse")
    x, y = np.ones((32, 3), "float32"), np.zeros((32, 2), "float32")
    callback = keras.callbacks.TensorBoard(str(tmp_path), histogram_freq=1, update_freq=2)
    model.fit(x, y, batch_size=4, epochs=2, validation_split=0.5, verbose=0, callbacks=[callback])
    records = lambda part: [r.numpy() for r in tf.data.TFRecordDataset([str(p) for p in (tmp_path / part).iterdir()])]
    train, validation = records("train"), records("validation")
    assert sum(b"epoch_loss" in r for r in train) == sum(b"epoch_loss" in r for r in validation) == 2
    assert sum(b"own/kernel/histogram" in r for r in train) == 2
    assert sum(b"graph_keras_model" in r for r in train) == 1
    # Of 8 batches every other one is written.
    assert sum(b"batch_loss" in r for r in train) == 4


def test_folders_of_images_and_texts_need_no_tensorflow(tmp_path):
    import plimsoll as tf

    for label, name in enumerate(["ants", "bees"]):
        for i in range(6):
            image = np.full((8 + i, 10, 3), 40 * label + i, np.uint8)
            tf.io.write_file(str(tmp_path / "images" / name / f"{i}.png"), tf.io.encode_png(image))
            tf.io.write_file(str(tmp_path / "texts" / name / f"{i}.txt"), f"{name} {i}")
    images = keras.utils.image_dataset_from_directory(tmp_path / "images", image_size=(4, 6), batch_size=5, seed=1, verbose=False)
    assert images.class_names == ["ants", "bees"]
    seen = [(float(x[0, 0, 0]), int(y)) for batch, labels in images for x, y in zip(batch.numpy(), labels.numpy())]
    assert sorted(seen) == [(40 * label + i, label) for label in range(2) for i in range(6)]
    parts = [
        keras.utils.image_dataset_from_directory(
            tmp_path / "images", image_size=(4, 6), validation_split=0.25, subset=part, seed=1, verbose=False
        )
        for part in ("training", "validation")
    ]
    assert [sum(len(labels) for _, labels in part) for part in parts] == [9, 3]
    texts = keras.utils.text_dataset_from_directory(tmp_path / "texts", label_mode="binary", batch_size=4, shuffle=False, verbose=False)
    lines = [line for batch, _ in texts for line in batch.numpy()]
    assert lines == [f"{name} {i}".encode() for name in ("ants", "bees") for i in range(6)]
    model = keras.Sequential([keras.Input((4, 6, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert np.isfinite(model.fit(images, verbose=0).history["loss"][0])


def test_windows_of_a_series():
    series = np.arange(20, dtype="float32")
    data = keras.utils.timeseries_dataset_from_array(series, series * 10, 4, sequence_stride=3, sampling_rate=2, batch_size=2)
    windows = [(x.tolist(), y) for batch, targets in data for x, y in zip(batch.numpy(), targets.numpy())]
    assert windows == [([i, i + 2, i + 4, i + 6], 10 * i) for i in range(0, 14, 3)]


@keras.saving.register_keras_serializable(package="test")
class Composed(keras.Model):
    """A model without a `build` of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return self.dense(x)


def test_a_model_that_was_built_by_training_is_saved_and_loaded(tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    model = Composed()
    model.compile("adam", "mse")
    model.fit(x, x[:, :3], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.built
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


def test_a_saved_model_is_refused_with_what_to_do_instead(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(NotImplementedError, match="model.save"):
        model.export(tmp_path / "exported")
