"""The two 8-bit floats beside ml_dtypes: every code, and many numbers of other types."""

import numpy as np
import pytest

import plimsoll as tf
from plimsoll import _engine as engine

ml_dtypes = pytest.importorskip("ml_dtypes")

TYPES = ("float8_e4m3fn", "float8_e5m2")


def codes(name):
    return np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))


@pytest.mark.parametrize("name", TYPES)
def test_every_code_goes_in_and_out(name):
    tensor = engine.tensor(codes(name))
    assert tensor.dtype == name and tensor.dtype.size == 1
    assert np.array_equal(tensor.numpy().view(np.uint8), np.arange(256))
    for wide in ("float32", "float64", "float16"):
        assert np.array_equal(tf.cast(tensor, wide).numpy(), codes(name).astype(wide), equal_nan=True)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"])
def test_numbers_round_as_others_round_them(name, source):
    rng = np.random.default_rng(3)
    exact = codes(name).astype(np.float32)
    numbers = np.concatenate(
        [
            exact,
            (exact[:-1] + exact[1:]) / 2,
            rng.normal(size=100_000) * 10.0 ** rng.uniform(-8, 6, 100_000),
            rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32),
            [np.inf, -np.inf, np.nan, -0.0],
        ]
    )
    if "float" not in source:
        numbers = rng.integers(-70_000, 70_000, 10_000)
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = numbers.astype(tf.as_dtype(source).as_numpy_dtype)
        expected = numbers.astype(getattr(ml_dtypes, name))
    found = tf.cast(engine.tensor(numbers), name).numpy()
    is_nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(found.astype(np.float32)), is_nan)
    assert np.array_equal(found.view(np.uint8)[~is_nan], expected.view(np.uint8)[~is_nan])


def test_gradients_pass_a_rounding_and_products_say_what_they_take():
    x = tf.constant([[0.3, 500.0], [1.0, -2.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.cast(tf.cast(x, "float8_e5m2"), "float32") * 3.0)
    assert np.array_equal(tape.gradient(y, x), np.full((2, 2), 3.0))
    with pytest.raises(Exception, match="at least 16 bits"):
        tf.matmul(tf.cast(x, "float8_e4m3fn"), tf.cast(x, "float8_e4m3fn"))
