"""Shapes: the same elements in another order, joined, split, repeated."""

import builtins
import math as pymath

import numpy as np
from keras.src.backend.common.backend_utils import canonicalize_axis

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import record
from keras_plimsoll.src.core import Tensor
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_numpy
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy.types import axes_of
from keras_plimsoll.src.numpy.types import like
from keras_plimsoll.src.numpy.types import part
from keras_plimsoll.src.numpy.arithmetic import subtract


def shape_of(newshape):
    return [int(n) for n in newshape] if isinstance(newshape, (list, tuple)) else [int(newshape)]


def reshape(x, newshape):
    x = convert_to_tensor(x)
    sizes = shape_of(newshape)
    if -1 in sizes:
        rest = pymath.prod(n for n in sizes if n != -1)
        total = pymath.prod(x.shape)
        if sizes.count(-1) > 1 or (rest and total % rest):
            raise ValueError(f"cannot reshape a tensor of shape {x.shape} into {tuple(sizes)}")
        sizes[sizes.index(-1)] = total // rest if rest else 0
    return engine.reshape(x, sizes)


def ravel(x):
    return reshape(x, (-1,))


def transpose(x, axes=None):
    x = convert_to_tensor(x)
    axes = list(range(x.ndim))[::-1] if axes is None else axes_of(axes, x.ndim)
    return engine.transpose(x, axes)


def swapaxes(x, axis1, axis2):
    x = convert_to_tensor(x)
    axes = list(range(x.ndim))
    a, b = canonicalize_axis(axis1, x.ndim), canonicalize_axis(axis2, x.ndim)
    axes[a], axes[b] = axes[b], axes[a]
    return engine.transpose(x, axes)


def moveaxis(x, source, destination):
    x = convert_to_tensor(x)
    source, destination = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    order = [axis for axis in range(x.ndim) if axis not in source]
    for to, axis in sorted(zip(destination, source)):
        order.insert(to, axis)
    return engine.transpose(x, order)


def expand_dims(x, axis):
    x = convert_to_tensor(x)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    ndim = x.ndim + len(axes)
    axes = sorted(canonicalize_axis(a, ndim) for a in axes)
    sizes = list(x.shape)
    for a in axes:
        sizes.insert(a, 1)
    return engine.reshape(x, sizes)


def squeeze(x, axis=None):
    x = convert_to_tensor(x)
    axes = [i for i, n in enumerate(x.shape) if n == 1] if axis is None else axes_of(axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"cannot squeeze axis {a} of size {x.shape[a]}; the shape is {x.shape}")
    return engine.reshape(x, [n for i, n in enumerate(x.shape) if i not in axes])


def broadcast_to(x, shape):
    return engine.broadcast_to(convert_to_tensor(x), shape_of(shape))


def broadcast_together(*xs):
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    return [x if tuple(x.shape) == shape else engine.broadcast_to(x, shape) for x in xs]


def ndim(x):
    return convert_to_tensor(x).ndim


def size(x):
    return pymath.prod(convert_to_tensor(x).shape)


def flip(x, axis=None):
    x = convert_to_tensor(x)
    return engine.flip(x, axes_of(axis, x.ndim)) if x.ndim else x


def fliplr(x):
    return flip(x, 1)


def flipud(x):
    return flip(x, 0)


def rot90(array, k=1, axes=(0, 1)):
    array = convert_to_tensor(array)
    if array.ndim < 2:
        raise ValueError(f"Input array must have at least 2 dimensions. Received: array.ndim={array.ndim}")
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(f"Invalid axes: {axes}. Axes must be a tuple of two different dimensions.")
    a, b = axes_of(axes, array.ndim)
    turns = k % 4
    if turns == 0:
        return array
    if turns == 2:
        return engine.flip(array, [a, b])
    return swapaxes(flip(array, b), a, b) if turns == 1 else flip(swapaxes(array, a, b), b)


def roll(x, shift, axis=None):
    x = convert_to_tensor(x)
    if axis is None:
        return reshape(roll(ravel(x), builtins.sum(shift) if isinstance(shift, (list, tuple)) else shift, 0), x.shape)
    axes = axes_of(axis, x.ndim)
    shifts = list(shift) if isinstance(shift, (list, tuple)) else [shift] * len(axes)
    for a, s in zip(axes, shifts):
        if isinstance(s, Tensor) and record.is_symbolic(s):
            count = engine.full((), x.shape[a], "int32")
            places = engine.binary("rem", subtract(engine.iota((x.shape[a],), 0, "int32"), cast(s, "int32")), count)
            x = engine.gather(x, places, a)
            continue
        n = x.shape[a]
        s = int(s) % n if n else 0
        if s:
            x = engine.concat([part(x, a, n - s, n), part(x, a, 0, n - s)], a)
    return x


def tile(x, repeats):
    x = convert_to_tensor(x)
    repeats = [int(r) for r in convert_to_numpy(repeats).reshape(-1)] if not isinstance(repeats, (list, tuple, int)) else repeats
    repeats = [int(r) for r in repeats] if isinstance(repeats, (list, tuple)) else [int(repeats)]
    if len(repeats) < x.ndim:
        repeats = [1] * (x.ndim - len(repeats)) + repeats
    if len(repeats) > x.ndim:
        x = engine.reshape(x, [1] * (len(repeats) - x.ndim) + list(x.shape))
    return engine.tile(x, repeats)


def repeat(x, repeats, axis=None):
    x = convert_to_tensor(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonicalize_axis(axis, x.ndim)
    counts = repeats if isinstance(repeats, int) else convert_to_numpy(repeats).reshape(-1)
    if not isinstance(counts, int) and counts.size == 1:
        counts = int(counts[0])
    if isinstance(counts, int):
        wide = engine.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
        wide = engine.broadcast_to(wide, (*x.shape[: axis + 1], counts, *x.shape[axis + 1 :]))
        return engine.reshape(wide, (*x.shape[:axis], x.shape[axis] * counts, *x.shape[axis + 1 :]))
    return engine.gather(x, convert_to_tensor(np.repeat(np.arange(x.shape[axis]), counts), "int32"), axis)


def pad(x, pad_width, mode="constant", constant_values=None):
    x = convert_to_tensor(x)
    if constant_values is not None and mode != "constant":
        raise ValueError(
            "Argument `constant_values` can only be provided when `mode == 'constant'`. " f"Received: mode={mode}"
        )
    widths = np.broadcast_to(np.asarray(convert_to_numpy(pad_width) if isinstance(pad_width, Tensor) else pad_width), (x.ndim, 2))
    before, after = [int(w) for w in widths[:, 0]], [int(w) for w in widths[:, 1]]
    if mode == "constant":
        return _pad_constant(x, before, after, 0 if constant_values is None else constant_values)
    if mode not in ("reflect", "symmetric", "edge", "wrap"):
        raise ValueError(f"unknown padding mode: {mode}")
    for axis, (low, high) in enumerate(zip(before, after)):
        if low or high:
            places = np.pad(np.arange(x.shape[axis]), (low, high), mode=mode)
            x = engine.gather(x, convert_to_tensor(places, "int32"), axis)
    return x


def _pad_constant(x, before, after, value):
    if isinstance(value, (bool, int, float)):
        if value == 0:
            return engine.pad(x, before, after)
        value = like(x, value)
    inside = engine.pad(engine.full(x.shape, 1, "uint8"), before, after)
    return engine.select(cast(inside, "bool"), engine.pad(x, before, after), cast(value, x.dtype))


def _common_type(xs):
    xs = [convert_to_tensor(x) for x in xs]
    dtypes = {x.dtype for x in xs}
    return [cast(x, result_type(*dtypes)) for x in xs] if len(dtypes) > 1 else xs


def concatenate(xs, axis=0):
    xs = _common_type(xs)
    if axis is None:
        return engine.concat([ravel(x) for x in xs], 0)
    return engine.concat(xs, canonicalize_axis(axis, xs[0].ndim))


def append(x1, x2, axis=None):
    return concatenate([ravel(x1), ravel(x2)] if axis is None else [x1, x2], axis=axis or 0)


def stack(x, axis=0):
    xs = _common_type(list(x))
    for other in xs[1:]:
        if other.shape != xs[0].shape:
            raise ValueError(f"all input arrays must have the same shape, got {xs[0].shape} and {other.shape}")
    axis = canonicalize_axis(axis, xs[0].ndim + 1)
    return engine.concat([expand_dims(v, axis) for v in xs], axis)


def hstack(xs):
    xs = [atleast_1d(x) for x in _common_type(xs)]
    return concatenate(xs, axis=0 if xs[0].ndim == 1 else 1)


def vstack(xs):
    return concatenate([atleast_2d(x) for x in _common_type(xs)], axis=0)


def dstack(xs):
    return concatenate([atleast_3d(x) for x in _common_type(xs)], axis=2)


def atleast_1d(x):
    x = convert_to_tensor(x)
    return reshape(x, (1,)) if x.ndim == 0 else x


def atleast_2d(x):
    x = atleast_1d(x)
    return expand_dims(x, 0) if x.ndim == 1 else x


def atleast_3d(x):
    x = atleast_2d(x)
    return expand_dims(x, -1) if x.ndim == 2 else x


def split(x, indices_or_sections, axis=0):
    x = convert_to_tensor(x)
    axis = canonicalize_axis(axis, x.ndim)
    if isinstance(indices_or_sections, int):
        if x.shape[axis] % indices_or_sections:
            raise ValueError(f"axis {axis} of size {x.shape[axis]} does not divide into {indices_or_sections} equal parts")
    return array_split(x, indices_or_sections, axis)


def array_split(x, indices_or_sections, axis=0):
    x = convert_to_tensor(x)
    axis = canonicalize_axis(axis, x.ndim)
    total = x.shape[axis]
    if isinstance(indices_or_sections, int):
        each, more = divmod(total, indices_or_sections)
        sizes = [each + 1] * more + [each] * (indices_or_sections - more)
        cuts = [0, *np.cumsum(sizes).tolist()]
    else:
        places = convert_to_numpy(indices_or_sections).reshape(-1).tolist() if not isinstance(indices_or_sections, (list, tuple)) else indices_or_sections
        cuts = [0, *[builtins.min(builtins.max(int(p) if p >= 0 else int(p) + total, 0), total) for p in places], total]
    return [part(x, axis, a, builtins.max(a, b)) for a, b in zip(cuts[:-1], cuts[1:])]


def hsplit(x, indices_or_sections):
    x = convert_to_tensor(x)
    return split(x, indices_or_sections, axis=0 if x.ndim == 1 else 1)


def vsplit(x, indices_or_sections):
    return split(x, indices_or_sections, axis=0)


def dsplit(x, indices_or_sections):
    return split(x, indices_or_sections, axis=2)
