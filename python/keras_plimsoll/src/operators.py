"""Operators of tensors with Keras' promotion of types, and indexing as in NumPy.

The engine's own operators take operands of one type. These are set on its `Tensor` when Keras is loaded.
"""

import builtins

import numpy as np

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import core
from keras_plimsoll.src import numpy as knp
from keras_plimsoll.src.core import KerasTensor
from keras_plimsoll.src.core import convert_to_tensor

_BINARY = {
    "add": knp.add,
    "sub": knp.subtract,
    "mul": knp.multiply,
    "truediv": knp.true_divide,
    "floordiv": knp.floor_divide,
    "mod": knp.mod,
    "pow": knp.power,
    "matmul": knp.matmul,
    "lshift": knp.left_shift,
    "rshift": knp.right_shift,
}
_COMPARE = {
    "eq": knp.equal,
    "ne": knp.not_equal,
    "lt": knp.less,
    "le": knp.less_equal,
    "gt": knp.greater,
    "ge": knp.greater_equal,
}


def _forward(function):
    def operator(self, other):
        if other is None or isinstance(other, (KerasTensor, str)):
            return NotImplemented
        return function(self, other)

    return operator


def _backward(function):
    def operator(self, other):
        if other is None or isinstance(other, (KerasTensor, str)):
            return NotImplemented
        return function(other, self)

    return operator


def _bits(logical, bitwise):
    """`&`, `|` and `^`: of booleans, and bit by bit of integers."""

    def function(a, b):
        a, b = convert_to_tensor(a), convert_to_tensor(b)
        both = a.dtype == "bool" and b.dtype == "bool"
        return (logical if both else bitwise)(a, b)

    return function


def install():
    """Gives `Tensor` its operators."""
    table = dict(_BINARY)
    table["and"] = _bits(knp.logical_and, knp.bitwise_and)
    table["or"] = _bits(knp.logical_or, knp.bitwise_or)
    table["xor"] = _bits(knp.logical_xor, knp.bitwise_xor)
    for name, function in table.items():
        setattr(core.Tensor, f"__{name}__", _forward(function))
        setattr(core.Tensor, f"__r{name}__", _backward(function))
    for name, function in _COMPARE.items():
        setattr(core.Tensor, f"__{name}__", _forward(function))
    core.Tensor.__neg__ = knp.negative
    core.Tensor.__pos__ = lambda self: self
    core.Tensor.__abs__ = knp.absolute
    core.Tensor.__invert__ = knp.bitwise_invert
    core.Tensor.__round__ = lambda self, ndigits=None: knp.round(self, ndigits or 0)
    core.Tensor.__getitem__ = getitem
    core.Tensor.__iter__ = _iterate
    core.Tensor.T = property(knp.transpose)
    core.Tensor.astype = core.cast
    # NumPy must not take `array + tensor` apart into its elements.
    core.Tensor.__array_priority__ = 100
    core.Tensor.__array_ufunc__ = None


def _iterate(self):
    if self.ndim == 0:
        raise TypeError("a scalar cannot be iterated over")
    return iter([getitem(self, i) for i in range(self.shape[0])])


def getitem(x, key):
    """`x[key]`: integers, slices, None, Ellipsis, integer arrays, boolean masks."""
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [_plain(k) for k in keys]
    keys = _spelled_out(keys, x.ndim)
    arrays = []
    axis = 0
    for k in keys:
        if k is None:
            x = knp.expand_dims(x, axis)
            axis += 1
        elif isinstance(k, slice):
            x = _sliced(x, axis, k)
            axis += 1
        elif isinstance(k, int):
            x = _picked(x, axis, k)
        elif k.dtype == "bool":
            x = _flattened(x, axis, k.ndim)
            places = np.nonzero(k.numpy().reshape(-1))[0]
            arrays.append((axis, convert_to_tensor(places, "int32")))
            axis += 1
        else:
            arrays.append((axis, k))
            axis += 1
    return _gathered(x, arrays) if arrays else x


def _plain(k):
    """A part of a key as None, Ellipsis, a slice, an integer or a tensor."""
    if k is None or k is Ellipsis or isinstance(k, slice):
        return k
    if isinstance(k, (bool, np.bool_)):
        return convert_to_tensor(np.array(k), "bool")
    if isinstance(k, (int, np.integer)):
        return int(k)
    k = convert_to_tensor(np.asarray(k) if isinstance(k, list) else k)
    if k.dtype not in ("bool", "int32", "int64"):
        if "float" in k.dtype and 0 not in k.shape:
            raise IndexError(f"tensors are indexed by integers and booleans, got {k.dtype}")
        k = core.cast(k, "int32")
    return k


def _spelled_out(keys, ndim):
    """The key with one entry for each axis: Ellipsis, and axes left out, made into full slices."""
    taken = builtins.sum(k.ndim if isinstance(k, core.Tensor) and k.dtype == "bool" else 1 for k in keys if k is not None and k is not Ellipsis)
    if taken > ndim:
        raise IndexError(f"{taken} indices for a tensor with {ndim} axes")
    rest = [slice(None)] * (ndim - taken)
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have one ellipsis")
    if not dots:
        return keys + rest
    return keys[: dots[0]] + rest + keys[dots[0] + 1 :]


def _bound(value):
    return None if value is None else int(value)


def _sliced(x, axis, key):
    size = x.shape[axis]
    start, stop, step = slice(_bound(key.start), _bound(key.stop), _bound(key.step)).indices(size)
    count = len(range(start, stop, step))
    if count == size and step == 1:
        return x
    if step < 0:
        # Backwards: the same places forwards, turned round.
        last = start + (count - 1) * step if count else 0
        return engine.flip(knp.part(x, axis, last, last + count * -step if count else last, -step), [axis])
    return knp.part(x, axis, start, start + count * step, step) if count else knp.part(x, axis, 0, 0)


def _picked(x, axis, place):
    size = x.shape[axis]
    if not -size <= place < size:
        raise IndexError(f"index {place} is out of bounds for axis {axis} with size {size}")
    place = place % size
    row = knp.part(x, axis, place, place + 1)
    return engine.reshape(row, x.shape[:axis] + x.shape[axis + 1 :])


def _flattened(x, axis, count):
    if count == 0:
        return knp.expand_dims(x, axis)
    merged = int(np.prod(x.shape[axis : axis + count]))
    return engine.reshape(x, (*x.shape[:axis], merged, *x.shape[axis + count :]))


def _gathered(x, arrays):
    """Integer arrays along several axes: they broadcast, and stand where the first was, or in front if apart."""
    axes = [axis for axis, _ in arrays]
    shape = np.broadcast_shapes(*[k.shape for _, k in arrays])
    places = [knp._from_front(engine.broadcast_to(k, shape), x.shape[axis]) for axis, k in arrays]
    if len(arrays) == 1:
        return engine.gather(x, places[0], axes[0])
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    order = axes + [i for i in range(x.ndim) if i not in axes]
    moved = engine.transpose(x, order)
    flat = core.cast(places[0], "int64")
    for axis, place in zip(axes[1:], places[1:]):
        rows = engine.binary("mul", flat, knp.like(flat, x.shape[axis]))
        flat = engine.binary("add", rows, core.cast(place, "int64"))
    count = int(np.prod([x.shape[a] for a in axes]))
    table = engine.reshape(moved, (count, *moved.shape[len(axes) :]))
    result = engine.gather(table, flat, 0)
    if together and axes[0] > 0:
        front = list(range(len(shape)))
        lead = list(range(len(shape), len(shape) + axes[0]))
        rest = list(range(len(shape) + axes[0], result.ndim))
        result = engine.transpose(result, lead + front + rest)
    return result
