"""Types and axes: what the others decide about their operands."""

import builtins

from keras.src.backend import config
from keras.src.backend.common.backend_utils import canonicalize_axis

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import result_type


def scalar(value, dtype):
    return engine.full((), value, dtype)


def like(x, value):
    """The scalar `value` of the type of `x`."""
    return engine.full((), value, x.dtype)


def is_float(x):
    return "float" in x.dtype


def to_float(x):
    """`x` as the float that a function with float results takes it as."""
    x = convert_to_tensor(x)
    if is_float(x):
        return x
    return cast(x, config.floatx() if x.dtype == "int64" else result_type(x.dtype, float))


def promoted(*xs, also=()):
    """The operands as tensors of their common type. Python numbers take the others' type where they can."""
    xs = [x if isinstance(x, (int, float)) else convert_to_tensor(x) for x in xs]
    types = {getattr(x, "dtype", None) for x in xs}
    if len(types) == 1 and None not in types and (not also or "float" in xs[0].dtype):
        return xs
    dtype = result_type(*[getattr(x, "dtype", type(x)) for x in xs], *also)
    return [convert_to_tensor(x, dtype) for x in xs]


def not_bool(x, instead="int32"):
    return cast(x, instead) if x.dtype == "bool" else x


def sum_type(dtype):
    return {"bool": "int32", "int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}.get(dtype, dtype)


def axes_of(axis, ndim):
    """`axis` as a list of axes counted from the front; None means all."""
    if axis is None:
        return list(range(ndim))
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    return [canonicalize_axis(int(a), ndim) for a in axes]


def part(x, axis, start, stop, step=1):
    """`x[start:stop:step]` along one axis, for bounds inside it."""
    starts, sizes, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], sizes[axis], steps[axis] = start, builtins.max(0, -((start - stop) // step)), step
    return engine.slice(x, starts, sizes, steps)


def along(x, axis, ndim):
    """A vector as a tensor of `ndim` axes that varies along `axis`."""
    shape = [1] * ndim
    shape[axis] = x.shape[0]
    return engine.reshape(x, shape)
