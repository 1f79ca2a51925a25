"""`x[...]`: integers, slices, newaxis, ellipsis, boolean masks, and tensors of indices."""

import numpy as np

from plimsoll import _engine as engine
from plimsoll._core import Tensor
from plimsoll._core import convert_to_tensor


def getitem(x, key):
    """The part of a tensor that `x[key]` is."""
    keys = [_plain(k) for k in (key if isinstance(key, tuple) else (key,))]
    keys = _spelled_out(keys, x.ndim)
    gathers, axis = [], 0
    starts, sizes, steps, turned, kept = [], [], [], [], []
    # One slice for all slices and integers; then what it left of them is given its shape.
    source = 0
    for k in keys:
        if k is None:
            kept.append(1)
            axis += 1
            continue
        size = x.shape[source]
        if isinstance(k, slice):
            start, stop, step = k.indices(size)
            count = len(range(start, stop, step))
            if step < 0:
                start, step = (start + (count - 1) * step if count else 0), -step
                turned.append(source)
            starts.append(min(start, size))
            sizes.append(count)
            steps.append(step)
            kept.append(count)
            axis += 1
        elif isinstance(k, int):
            if not -size <= k < size:
                raise IndexError(f"index {k} is out of bounds for axis {source} with size {size}")
            starts.append(k % size)
            sizes.append(1)
            steps.append(1)
        else:
            many = k.ndim if k.dtype == "bool" else 1
            if k.dtype == "bool" and tuple(k.shape) != tuple(x.shape[source : source + many]):
                raise IndexError(f"a mask of shape {tuple(k.shape)} for axes of sizes {tuple(x.shape[source : source + many])}")
            for part in x.shape[source : source + many]:
                starts.append(0)
                sizes.append(part)
                steps.append(1)
            kept.append(int(np.prod(x.shape[source : source + many])))
            if k.dtype == "bool":
                k = convert_to_tensor(np.flatnonzero(k.numpy()).astype(np.int32))
            gathers.append((axis, k))
            axis += 1
            source += many - 1
        source += 1
    if sizes != list(x.shape):
        x = engine.slice(x, starts, sizes, steps)
    if turned:
        x = engine.flip(x, turned)
    if kept != list(x.shape):
        x = engine.reshape(x, kept)
    return _gathered(x, gathers) if gathers else x


def _plain(k):
    if k is None or k is Ellipsis:
        return k
    if isinstance(k, slice):
        return slice(*(None if v is None else int(v) for v in (k.start, k.stop, k.step)))
    if isinstance(k, (bool, np.bool_)):
        raise TypeError("a tensor is indexed by integers, slices, masks and tensors, not by a single bool")
    if isinstance(k, (int, np.integer)):
        return int(k)
    k = convert_to_tensor(k)
    if isinstance(k, Tensor) and k.dtype in ("bool", "int32", "int64"):
        return k
    raise TypeError(f"Only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and int32/int64/bool tensors are valid indices, got {k!r}")


def _spelled_out(keys, ndim):
    """The key with one entry for each axis: ellipsis, and axes left out, made into full slices."""
    taken = sum(k.ndim if isinstance(k, Tensor) and k.dtype == "bool" else 1 for k in keys if k is not None and k is not Ellipsis)
    if taken > ndim:
        raise IndexError(f"too many indices: {taken} for a tensor with {ndim} axes")
    rest = [slice(None)] * (ndim - taken)
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    return keys[: dots[0]] + rest + keys[dots[0] + 1 :] if dots else keys + rest


def _from_front(k, size):
    """Negative places counted from the front."""
    return engine.select(engine.binary("lt", k, 0), engine.binary("add", k, size), k)


def _gathered(x, arrays):
    """Tensors of places along several axes: they broadcast, and stand where the first was, or in front if apart."""
    axes = [axis for axis, _ in arrays]
    shape = list(np.broadcast_shapes(*(tuple(k.shape) for _, k in arrays)))
    places = [_from_front(k, x.shape[axis]) for axis, k in arrays]
    if len(arrays) == 1:
        return engine.gather(x, places[0], axes[0])
    places = [engine.broadcast_to(engine.cast(k, "int64"), shape) for k in places]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    moved = engine.transpose(x, axes + [i for i in range(x.ndim) if i not in axes])
    flat = places[0]
    for axis, place in zip(axes[1:], places[1:]):
        flat = engine.binary("add", engine.binary("mul", flat, x.shape[axis]), place)
    count = int(np.prod([x.shape[a] for a in axes]))
    result = engine.gather(engine.reshape(moved, [count, *moved.shape[len(axes) :]]), flat, 0)
    if together and axes[0] > 0:
        n, lead = len(shape), axes[0]
        result = engine.transpose(result, [*range(n, n + lead), *range(n), *range(n + lead, result.ndim)])
    return result
