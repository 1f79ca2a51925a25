"""`tf.experimental.numpy`: NumPy's names for what `tf` has."""

import numpy as np

from plimsoll import _array
from plimsoll import _engine as engine
from plimsoll import linalg
from plimsoll import math
from plimsoll._core import convert_to_tensor
from plimsoll._core import Tensor as ndarray  # noqa: F401
from plimsoll._types import as_dtype

pi, e, inf, nan, newaxis = np.pi, np.e, np.inf, np.nan, None

abs = absolute = math.abs
add, subtract, multiply, divide, true_divide = math.add, math.subtract, math.multiply, math.divide, math.divide
exp, log, log1p, sqrt, square, sin, cos, tan, tanh = (getattr(math, n) for n in "exp log log1p sqrt square sin cos tan tanh".split())
maximum, minimum, power, sign, floor, ceil = math.maximum, math.minimum, math.pow, math.sign, math.floor, math.ceil
sum, mean, max, min, prod, all, any = (getattr(math, f"reduce_{n}") for n in "sum mean max min prod all any".split())
var, std = math.reduce_variance, math.reduce_std
amax, amin, argmax, argmin, cumsum = max, min, math.argmax, math.argmin, math.cumsum
equal, not_equal, greater, less = math.equal, math.not_equal, math.greater, math.less
reshape, transpose, concatenate, stack, where = _array.reshape, _array.transpose, _array.concat, _array.stack, _array.where
squeeze, expand_dims, tile, repeat, flip, zeros_like, ones_like = (getattr(_array, n) for n in "squeeze expand_dims tile repeat reverse zeros_like ones_like".split())
matmul, tensordot, einsum = engine.matmul, linalg.tensordot, linalg.einsum


def array(val, dtype=None, copy=True, ndmin=0):
    """A tensor."""
    x = convert_to_tensor(np.asarray(val) if not isinstance(val, ndarray) else val)
    return x if dtype is None else math.cast(x, dtype)


asarray = array


def zeros(shape, dtype="float64"):
    """Zeros."""
    return _array.zeros(shape, dtype)


def ones(shape, dtype="float64"):
    """Ones."""
    return _array.ones(shape, dtype)


def arange(start, stop=None, step=1, dtype=None):
    """Numbers at equal distances."""
    return convert_to_tensor(np.arange(*((start,) if stop is None else (start, stop, step)), dtype=None if dtype is None else as_dtype(dtype).as_numpy_dtype))


def linspace(start, stop, num=50):
    """Numbers at equal distances, both ends included."""
    return convert_to_tensor(np.linspace(start, stop, num))


def dot(a, b):
    """The product of matrices or vectors."""
    return engine.matmul(convert_to_tensor(a), convert_to_tensor(b))


def ravel(a):
    """All elements along one axis."""
    return _array.reshape(a, [-1])


def experimental_enable_numpy_behavior(*args, **kwargs):
    """Accepted: types are not promoted."""
