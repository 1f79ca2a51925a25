"""Elements chosen by places."""

import math as pymath

import numpy as np
from keras.src.backend.common.backend_utils import canonicalize_axis

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.numpy.types import like
from keras_plimsoll.src.numpy.types import promoted
from keras_plimsoll.src.numpy.arithmetic import less
from keras_plimsoll.src.numpy.arithmetic import where
from keras_plimsoll.src.numpy.shape import ravel


def select(condlist, choicelist, default=0):
    *choices, result = promoted(*choicelist, default)
    for condition, choice in reversed(list(zip(condlist, choices))):
        result = where(condition, choice, result)
    return result


def take(x, indices, axis=None):
    x = convert_to_tensor(x)
    indices = _indices(indices)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonicalize_axis(axis, x.ndim)
    return engine.gather(x, from_front(indices, x.shape[axis]), axis)


def _indices(indices):
    indices = convert_to_tensor(indices)
    return indices if indices.dtype in ("int32", "int64") else cast(indices, "int32")


def from_front(indices, size_):
    """Indices counted from the end made into those from the front."""
    return engine.select(less(indices, 0), engine.binary("add", indices, like(indices, size_)), indices)


def take_along_axis(x, indices, axis=None):
    x, indices = convert_to_tensor(x), _indices(indices)
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(f"`indices` must be 1D if axis=None. Received: indices.shape={indices.shape}")
        x, axis = ravel(x), 0
    if x.ndim != indices.ndim:
        raise ValueError(
            "`x` and `indices` must have the same number of dimensions, "
            f"but receive shape {x.shape} and {indices.shape}."
        )
    axis = canonicalize_axis(axis, x.ndim)
    others = lambda shape: [1 if i == axis else n for i, n in enumerate(shape)]
    common = np.broadcast_shapes(others(x.shape), others(indices.shape))
    at = lambda n: [n if i == axis else m for i, m in enumerate(common)]
    x = engine.broadcast_to(x, at(x.shape[axis]))
    indices = engine.broadcast_to(indices, at(indices.shape[axis]))
    return engine.take_along(x, from_front(indices, x.shape[axis]), axis)


def unravel_index(indices, shape):
    indices = convert_to_tensor(indices)
    dtype = indices.dtype
    rest = indices if dtype == "int64" else cast(indices, "int64")
    total = pymath.prod(shape)
    rest = from_front(rest, total)
    found = []
    for n in reversed(shape):
        found.append(cast(engine.binary("rem", rest, like(rest, n)), dtype))
        rest = engine.binary("floor_div", rest, like(rest, n))
    return tuple(reversed(found))
