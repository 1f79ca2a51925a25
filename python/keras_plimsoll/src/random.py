"""`keras.random`: numbers that are a function of the seed, drawn by the engine's counter-based generator."""


import numpy as np
from keras.src.backend.config import floatx
from keras.src.random.seed_generator import SeedGenerator  # noqa: F401
from keras.src.random.seed_generator import draw_seed
from keras.src.random.seed_generator import make_default_seed  # noqa: F401

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import numpy as knp
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import on_host
from keras_plimsoll.src.numpy import like


def _shape(shape):
    return tuple(int(n) for n in shape)


def _draw(seed, distribution, shape, dtype):
    """Drawn in single precision at least: of half precision there are too few values between 0 and 1."""
    work = dtype if dtype in ("float32", "float64") else "float32"
    return engine.random(cast(draw_seed(seed), "int64"), distribution, _shape(shape), work)


def normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    dtype = dtype or floatx()
    values = _draw(seed, "normal", shape, dtype)
    return cast(knp.add(knp.multiply(values, cast(stddev, values.dtype)), cast(mean, values.dtype)), dtype)


def uniform(shape, minval=0.0, maxval=1.0, dtype=None, seed=None):
    dtype = dtype or floatx()
    values = _draw(seed, "uniform", shape, dtype)
    low, high = cast(minval, values.dtype), cast(maxval, values.dtype)
    return cast(knp.add(knp.multiply(values, knp.subtract(high, low)), low), dtype)


def truncated_normal(shape, mean=0.0, stddev=1.0, dtype=None, seed=None):
    dtype = dtype or floatx()
    values = _draw(seed, "truncated_normal", shape, dtype)
    return cast(knp.add(knp.multiply(values, cast(stddev, values.dtype)), cast(mean, values.dtype)), dtype)


def randint(shape, minval, maxval, dtype="int32", seed=None):
    low, high = convert_to_tensor(minval, "int64"), convert_to_tensor(maxval, "int64")
    count = cast(knp.subtract(cast(high, "float64"), cast(low, "float64")), "float64")
    values = _draw(seed, "uniform", shape, "float64")
    steps = engine.unary("floor", engine.binary("mul", values, count))
    # The product can round up to the end, which is not drawn.
    steps = engine.binary("min", steps, engine.binary("sub", count, like(count, 1.0)))
    return cast(engine.binary("add", cast(steps, "int64"), low), dtype)


def categorical(logits, num_samples, dtype="int64", seed=None):
    """The largest of the logits with Gumbel noise: one draw for each sample."""
    logits = knp.to_float(logits)
    rows, classes = logits.shape
    noise = _draw(seed, "uniform", (rows, int(num_samples), classes), logits.dtype)
    noise = knp.clip(noise, 1e-20, 1.0)
    gumbel = knp.negative(knp.log(knp.add(knp.negative(knp.log(noise)), 1e-20)))
    return cast(engine.argmax(knp.add(knp.expand_dims(logits, 1), gumbel), 2), dtype)


def dropout(inputs, rate, noise_shape=None, seed=None):
    inputs = convert_to_tensor(inputs)
    if rate >= 1.0:
        return knp.zeros_like(inputs)
    if rate <= 0.0:
        return inputs
    shape = inputs.shape
    if noise_shape is not None:
        shape = [inputs.shape[i] if n is None else n for i, n in enumerate(noise_shape)]
    keep = knp.less(_draw(seed, "uniform", shape, "float32"), 1.0 - rate)
    return engine.select(keep, knp.multiply(inputs, 1.0 / (1.0 - rate)), like(inputs, 0))


def shuffle(x, axis=0, seed=None):
    x = convert_to_tensor(x)
    axis = knp.axes_of(axis, x.ndim)[0]
    keys = _draw(seed, "uniform", (x.shape[axis],), "float64")
    return engine.gather(x, engine.sort(keys, 0, False)[1], axis)


def _generator(seed):
    """NumPy's generator for distributions that need rejection, keyed by the seed."""
    return np.random.default_rng([int(s) & 0xFFFFFFFFFFFFFFFF for s in np.asarray(seed).reshape(-1)])


def gamma(shape, alpha, dtype=None, seed=None):
    dtype, shape = dtype or floatx(), _shape(shape)
    draw = lambda s, a: _generator(s).gamma(a, size=shape)
    return on_host(draw, [draw_seed(seed), cast(alpha, "float64")], [(shape, dtype)])[0]


def binomial(shape, counts, probabilities, dtype=None, seed=None):
    dtype, shape = dtype or floatx(), _shape(shape)
    draw = lambda s, n, p: _generator(s).binomial(n.astype("int64"), p, size=shape)
    inputs = [draw_seed(seed), cast(counts, "float64"), cast(probabilities, "float64")]
    return on_host(draw, inputs, [(shape, dtype)])[0]


def beta(shape, alpha, beta, dtype=None, seed=None):
    dtype, shape = dtype or floatx(), _shape(shape)
    draw = lambda s, a, b: _generator(s).beta(a, b, size=shape)
    return on_host(draw, [draw_seed(seed), cast(alpha, "float64"), cast(beta, "float64")], [(shape, dtype)])[0]


