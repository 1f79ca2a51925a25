"""Tensors made of numbers: filled, counted, of diagonals and windows."""

import builtins
import math as pymath

import numpy as np
from keras.src.backend import config
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.backend_utils import canonicalize_axis

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_numpy
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy.types import along
from keras_plimsoll.src.numpy.types import like
from keras_plimsoll.src.numpy.types import scalar
from keras_plimsoll.src.numpy.arithmetic import absolute
from keras_plimsoll.src.numpy.arithmetic import add
from keras_plimsoll.src.numpy.arithmetic import cos
from keras_plimsoll.src.numpy.arithmetic import divide
from keras_plimsoll.src.numpy.arithmetic import equal
from keras_plimsoll.src.numpy.arithmetic import greater_equal
from keras_plimsoll.src.numpy.arithmetic import log
from keras_plimsoll.src.numpy.arithmetic import maximum
from keras_plimsoll.src.numpy.arithmetic import multiply
from keras_plimsoll.src.numpy.arithmetic import square
from keras_plimsoll.src.numpy.arithmetic import subtract
from keras_plimsoll.src.numpy.elements import i0
from keras_plimsoll.src.numpy.elements import sign
from keras_plimsoll.src.numpy.shape import broadcast_to
from keras_plimsoll.src.numpy.shape import broadcast_together
from keras_plimsoll.src.numpy.shape import expand_dims
from keras_plimsoll.src.numpy.shape import flip
from keras_plimsoll.src.numpy.shape import moveaxis
from keras_plimsoll.src.numpy.shape import ravel
from keras_plimsoll.src.numpy.reduce import sum


def array(x, dtype=None):
    return convert_to_tensor(x, dtype=dtype)


def _size(shape):
    return tuple(int(n) for n in shape) if isinstance(shape, (list, tuple)) or hasattr(shape, "__len__") else (int(shape),)


def full(shape, fill_value, dtype=None):
    dtype = standardize_dtype(dtype)
    if isinstance(fill_value, (bool, int, float)):
        return engine.full(_size(shape), fill_value, dtype)
    return broadcast_to(convert_to_tensor(fill_value, dtype), shape)


def ones(shape, dtype=None):
    return engine.full(_size(shape), 1, standardize_dtype(dtype))


def zeros(shape, dtype=None):
    return engine.full(_size(shape), 0, standardize_dtype(dtype))


empty = zeros


def full_like(x, fill_value, dtype=None):
    x = convert_to_tensor(x)
    return full(x.shape, fill_value, dtype or x.dtype)


def ones_like(x, dtype=None):
    return full_like(x, 1, dtype)


def zeros_like(x, dtype=None):
    return full_like(x, 0, dtype)


def empty_like(x, dtype=None):
    return full_like(x, 0, dtype)


def arange(start, stop=None, step=None, dtype=None):
    if dtype is None:
        dtype = result_type(*[getattr(v, "dtype", type(v)) for v in (start, stop, step) if v is not None])
    dtype = standardize_dtype(dtype)
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number(v) for v in (start, stop, 1 if step is None else step))
    count = builtins.max(0, pymath.ceil((stop - start) / step))
    if dtype == "bool":
        return convert_to_tensor(np.arange(start, stop, step).astype("bool"))
    # Counted in a type that holds every place exactly, so that half precision rounds once.
    wide = "float64" if "float" in dtype else "int64"
    places = engine.iota((count,), 0, wide)
    values = engine.binary("add", engine.binary("mul", places, scalar(step, wide)), scalar(start, wide))
    if wide == "int64" and builtins.any(isinstance(v, float) for v in (start, step)):
        values = convert_to_tensor(np.arange(start, stop, step).astype("int64"), "int64")
    return cast(values, dtype)


def _number(x):
    if isinstance(x, (int, float)):
        return x
    value = convert_to_numpy(x)
    return value.item()


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0):
    if dtype is None:
        dtype = result_type(getattr(start, "dtype", type(start)), getattr(stop, "dtype", type(stop)), float)
    dtype = standardize_dtype(dtype)
    work = dtype if dtype in ("float32", "float64") else "float32"
    start, stop = convert_to_tensor(start, work), convert_to_tensor(stop, work)
    start, stop = broadcast_together(start, stop)
    gaps = (num - 1) if endpoint else num
    step = divide(subtract(stop, start), like(start, builtins.max(gaps, 1)))
    fraction = divide(engine.iota((num,), 0, work), scalar(builtins.max(gaps, 1), work))
    fraction = engine.reshape(fraction, (num, *[1] * start.ndim))
    # Towards both ends, so that the last value is `stop` itself.
    values = add(multiply(start, subtract(scalar(1, work), fraction)), multiply(stop, fraction))
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        values = engine.unary("floor", values)
    values = moveaxis(cast(values, dtype), 0, axis) if start.ndim else cast(values, dtype)
    if retstep:
        return values, (step if gaps > 0 else full_like(step, pymath.nan))
    return values


def logspace(start, stop, num=50, endpoint=True, base=10, dtype=None, axis=0):
    if dtype is None:
        dtype = result_type(getattr(start, "dtype", type(start)), getattr(stop, "dtype", type(stop)), float)
    exponents = linspace(start, stop, num=num, endpoint=endpoint, dtype="float64" if dtype != "float64" else dtype, axis=axis)
    return cast(engine.binary("pow", convert_to_tensor(base, exponents.dtype), exponents), dtype)


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    dtype = dtype or config.floatx()
    start, stop = convert_to_tensor(start, "float64"), convert_to_tensor(stop, "float64")
    start, stop = broadcast_together(start, stop)
    direction = sign(start)
    exponents = linspace(log(absolute(start)), log(absolute(stop)), num=num, endpoint=endpoint, dtype="float64", axis=axis)
    values = engine.unary("exp", exponents)
    direction = expand_dims(direction, axis) if direction.ndim else direction
    return cast(multiply(values, direction), dtype)


def eye(N, M=None, k=0, dtype=None):
    N, M = int(N), int(N if M is None else M)
    rows, columns = engine.iota((N, M), 0, "int32"), engine.iota((N, M), 1, "int32")
    return cast(equal(add(rows, int(k)), columns), standardize_dtype(dtype))


def identity(n, dtype=None):
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    return cast(_lower(int(N), int(N if M is None else M), int(k)), standardize_dtype(dtype))


def _lower(rows, columns, k):
    i, j = engine.iota((rows, columns), 0, "int32"), engine.iota((rows, columns), 1, "int32")
    return greater_equal(add(i, k), j)


def tril(x, k=0):
    x = convert_to_tensor(x)
    return engine.select(_lower(*x.shape[-2:], int(k)), x, like(x, 0))


def triu(x, k=0):
    x = convert_to_tensor(x)
    return engine.select(_lower(*x.shape[-2:], int(k) - 1), like(x, 0), x)


def diag(x, k=0):
    x = convert_to_tensor(x)
    if x.ndim == 2:
        return diagonal(x, offset=k)
    if x.ndim != 1:
        raise ValueError(f"`x` must be 1-d or 2-d. Received: x.shape={x.shape}")
    size = x.shape[0] + builtins.abs(k)
    row = engine.pad(x, [builtins.max(k, 0)], [builtins.max(-k, 0)])
    return engine.select(cast(eye(size, k=k, dtype="int32"), "bool"), along(row, 1, 2), like(x, 0))


def diagflat(x, k=0):
    return diag(ravel(x), k=k)


def diagonal(x, offset=0, axis1=0, axis2=1):
    x = convert_to_tensor(x)
    axis1, axis2 = canonicalize_axis(axis1, x.ndim), canonicalize_axis(axis2, x.ndim)
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    start = (0, offset) if offset >= 0 else (-offset, 0)
    count = builtins.max(0, builtins.min(rows - start[0], columns - start[1]))
    flat = engine.reshape(x, (*x.shape[:-2], rows * columns))
    first = start[0] * columns + start[1]
    places = convert_to_tensor(np.arange(count, dtype="int32") * (columns + 1) + first, "int32")
    return engine.gather(flat, places, flat.ndim - 1)


def trace(x, offset=0, axis1=0, axis2=1):
    return sum(diagonal(x, offset, axis1, axis2), axis=-1)


def vander(x, N=None, increasing=False):
    x = convert_to_tensor(x)
    dtype = result_type(x.dtype)
    count = x.shape[0] if N is None else int(N)
    work = cast(x, result_type(x.dtype, config.floatx()))
    powers = engine.iota((count,), 0, work.dtype)
    powers = powers if increasing else flip(powers)
    return cast(engine.binary("pow", along(work, 0, 2), along(powers, 1, 2)), dtype)


def meshgrid(*x, indexing="xy"):
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for `indexing` are 'xy' and 'ij'. Received: indexing={indexing}")
    xs = [ravel(convert_to_tensor(v)) for v in x]
    n = len(xs)
    order = list(range(n))
    if indexing == "xy" and n > 1:
        order[0], order[1] = 1, 0
    shape = [0] * n
    for v, axis in zip(xs, order):
        shape[axis] = v.shape[0]
    return [engine.broadcast_to(along(v, axis, n), shape) for v, axis in zip(xs, order)]


def _window(size, coefficients):
    size = int(convert_to_numpy(size))
    dtype = config.floatx()
    if size <= 1:
        return ones((builtins.max(size, 0),), dtype)
    angle_ = multiply(engine.iota((size,), 0, "float64"), scalar(2 * pymath.pi / (size - 1), "float64"))
    total = scalar(0, "float64")
    for n, c in enumerate(coefficients):
        total = add(total, multiply(cos(multiply(angle_, scalar(n, "float64"))), scalar(c, "float64")))
    return cast(total, dtype)


def hamming(x):
    return _window(x, [0.54, -0.46])


def hanning(x):
    return _window(x, [0.5, -0.5])


def blackman(x):
    return _window(x, [0.42, -0.5, 0.08])


def bartlett(x):
    size = int(convert_to_numpy(x))
    if size <= 1:
        return ones((builtins.max(size, 0),))
    place = engine.iota((size,), 0, config.floatx())
    half = (size - 1) / 2.0
    return subtract(1.0, divide(absolute(subtract(place, half)), half))


def kaiser(x, beta):
    size = int(convert_to_numpy(x))
    if size <= 1:
        return ones((builtins.max(size, 0),))
    place = engine.iota((size,), 0, "float64")
    half = (size - 1) / 2.0
    beta = convert_to_tensor(beta, "float64")
    inside = engine.unary("sqrt", maximum(subtract(scalar(1, "float64"), square(divide(subtract(place, half), half))), 0))
    return cast(divide(i0(multiply(inside, beta)), i0(beta)), config.floatx())
