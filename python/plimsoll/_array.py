"""Shapes and places: making tensors, reshaping, joining, cutting, gathering. All are names of `tf` itself."""

import numpy as np

from plimsoll import _engine as engine
from plimsoll._core import StringTensor
from plimsoll._core import Tensor
from plimsoll._core import constant
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll._core import pair
from plimsoll._core import raw_dtype
from plimsoll._core import static_shape
from plimsoll._core import strings_of
from plimsoll._types import TensorShape
from plimsoll._types import as_dtype
from plimsoll.errors import InvalidArgumentError


def _like(x):
    """A tensor, or the array of a tensor of strings."""
    return convert_to_tensor(x)


@op
def zeros(shape, dtype="float32", name=None, layout=None):
    """Zeros."""
    return _filled(shape, 0, dtype)


@op
def ones(shape, dtype="float32", name=None, layout=None):
    """Ones."""
    return _filled(shape, 1, dtype)


def _filled(shape, value, dtype):
    dtype = as_dtype(dtype)
    if dtype == "string":
        return StringTensor(np.full(static_shape(shape), b"", object))
    return engine.full(static_shape(shape), value, dtype.name)


@op
def zeros_like(input, dtype=None, name=None, layout=None):
    """Zeros with the shape and type of a tensor."""
    x = _like(input)
    return _filled(x.shape, 0, dtype or x.dtype)


@op
def ones_like(input, dtype=None, name=None, layout=None):
    """Ones with the shape and type of a tensor."""
    x = _like(input)
    return _filled(x.shape, 1, dtype or x.dtype)


@op
def fill(dims, value, name=None, layout=None):
    """One value everywhere."""
    value = convert_to_tensor(value)
    if isinstance(value, StringTensor):
        return StringTensor(np.full(static_shape(dims), value.numpy(), object))
    return engine.broadcast_to(value, static_shape(dims))


@op
def eye(num_rows, num_columns=None, batch_shape=None, dtype="float32", name=None):
    """Ones on the diagonal of a matrix of zeros."""
    rows, columns = int(num_rows), int(num_columns if num_columns is not None else num_rows)
    same = engine.binary("eq", engine.iota([rows, columns], 0, "int32"), engine.iota([rows, columns], 1, "int32"))
    x = engine.cast(same, as_dtype(dtype).name)
    return x if batch_shape is None else engine.broadcast_to(x, [*static_shape(batch_shape), rows, columns])


@op
def identity(input, name=None):
    """The tensor itself."""
    x = _like(input)
    return x if isinstance(x, StringTensor) else engine.unary("identity", x)


@op
def stop_gradient(input, name=None):
    """The tensor itself, through which no gradient flows."""
    x = _like(input)
    return engine.stop_gradient(x) if "float" in raw_dtype(x) else x


@op
def shape(input, out_type="int32", name=None):
    """The sizes as a tensor."""
    sizes = _like(input).shape
    return engine.tensor(np.array(sizes, as_dtype(out_type).as_numpy_dtype))


def shape_n(input, out_type="int32", name=None):
    """The sizes of several tensors."""
    return [shape(x, out_type) for x in input]


@op
def ensure_shape(x, shape, name=None):
    """The tensor itself, which has this shape; an error otherwise. `None` stands for any size."""
    x = _like(x)
    wanted = TensorShape(shape)
    if not wanted.is_compatible_with(x.shape):
        raise InvalidArgumentError(None, None, f"ensure_shape: the tensor has the shape {x.shape}, not {wanted}")
    return x


@op
def unravel_index(indices, dims, name=None):
    """Places in row-major order as one index for each axis, by rows of the result."""
    places = np.unravel_index(_like(indices).numpy(), tuple(int(d) for d in _like(dims).numpy()))
    return engine.tensor(np.stack(places).astype(raw_dtype(_like(indices))))


@op
def size(input, out_type="int32", name=None):
    """The number of elements as a tensor."""
    return engine.tensor(np.array(_like(input).shape.num_elements(), as_dtype(out_type).as_numpy_dtype))


@op
def rank(input, name=None):
    """The number of axes as a tensor."""
    return engine.tensor(np.array(_like(input).ndim, np.int32))


def _sizes(x, shape):
    """A shape with at most one -1 filled in."""
    return static_shape(shape)


@op
def reshape(tensor, shape, name=None):
    """The same elements under another shape; one size may be -1."""
    x = _like(tensor)
    if isinstance(x, StringTensor):
        return StringTensor(x._array.reshape(static_shape(shape)))
    return engine.reshape(x, _sizes(x, shape))


@op
def squeeze(input, axis=None, name=None):
    """Without axes of size 1."""
    x = _like(input)
    sizes = list(x.shape)
    axes = [i for i, d in enumerate(sizes) if d == 1] if axis is None else [a % len(sizes) for a in np.atleast_1d(axis)]
    for a in axes:
        if sizes[a] != 1:
            raise InvalidArgumentError(None, None, f"Can not squeeze dim[{a}], expected a dimension of 1, got {sizes[a]}")
    return reshape(x, [d for i, d in enumerate(sizes) if i not in axes])


@op
def expand_dims(input, axis, name=None):
    """With a new axis of size 1."""
    x = _like(input)
    axis, sizes = int(axis), list(x.shape)
    if not -len(sizes) - 1 <= axis <= len(sizes):
        raise InvalidArgumentError(None, None, f"Tried to expand dim index {axis} for tensor with {len(sizes)} dimensions.")
    sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, 1)
    return reshape(x, sizes)


@op
def transpose(a, perm=None, conjugate=False, name="transpose"):
    """The axes in another order, reversed when none is given."""
    x = _like(a)
    perm = None if perm is None else static_shape(perm)
    if isinstance(x, StringTensor):
        return StringTensor(np.transpose(x._array, perm))
    return engine.transpose(x, perm)


@op
def broadcast_to(input, shape, name=None):
    """Repeated along axes of size 1 or new ones."""
    x = _like(input)
    if isinstance(x, StringTensor):
        return StringTensor(np.broadcast_to(x._array, static_shape(shape)))
    return engine.broadcast_to(x, static_shape(shape))


def broadcast_static_shape(shape_x, shape_y):
    """The shape that two broadcast to."""
    try:
        return TensorShape(np.broadcast_shapes(tuple(shape_x), tuple(shape_y)))
    except ValueError as error:
        raise ValueError(f"Incompatible shapes for broadcasting: {shape_x} and {shape_y}") from error


@op
def broadcast_dynamic_shape(shape_x, shape_y, name=None):
    """The shape that two broadcast to, as a tensor."""
    return engine.tensor(np.array(broadcast_static_shape(static_shape(shape_x), static_shape(shape_y)), np.int32))


@op
def concat(values, axis, name="concat"):
    """Tensors side by side along an axis."""
    if isinstance(values, (Tensor, StringTensor)):
        return values
    parts = _alike(values)
    if isinstance(parts[0], StringTensor):
        return StringTensor(np.concatenate([p._array for p in parts], int(axis)))
    return engine.concat(parts, int(axis))


def _alike(values):
    """Values as tensors of the type of the first that has one."""
    hint = next((v.dtype for v in values if isinstance(v, (Tensor, StringTensor))), None)
    parts = [convert_to_tensor(v, dtype_hint=hint) for v in values]
    for part in parts:
        if part.dtype != parts[0].dtype:
            text = f"tensors of different types cannot be joined: {parts[0].dtype.name} and {part.dtype.name}"
            raise InvalidArgumentError(None, None, text)
    return parts


@op
def stack(values, axis=0, name="stack"):
    """Tensors of one shape side by side along a new axis."""
    parts = _alike(values)
    if isinstance(parts[0], StringTensor):
        return StringTensor(np.stack([p._array for p in parts], axis))
    shapes = {tuple(p.shape) for p in parts}
    if len(shapes) > 1:
        raise InvalidArgumentError(None, None, f"Shapes of all inputs must match: {sorted(shapes)} [Op:Pack]")
    sizes = list(parts[0].shape)
    at = axis if axis >= 0 else axis + len(sizes) + 1
    sizes.insert(at, 1)
    return engine.concat([engine.reshape(p, sizes) for p in parts], at)


parallel_stack = stack


@op
def unstack(value, num=None, axis=0, name="unstack"):
    """The slices along an axis, as a list."""
    x = _like(value)
    axis = axis % x.ndim
    return [x[(slice(None),) * axis + (i,)] for i in range(x.shape[axis])]


@op
def split(value, num_or_size_splits, axis=0, num=None, name="split"):
    """A tensor cut along an axis: into equal parts, or into parts of these sizes."""
    x = _like(value)
    axis = int(axis) % x.ndim
    whole = x.shape[axis]
    if isinstance(num_or_size_splits, (int, np.integer)):
        n = int(num_or_size_splits)
        if n < 1 or whole % n:
            raise InvalidArgumentError(None, None, f"Dimension size, {whole}, must be evenly divisible by {n}")
        sizes = [whole // n] * n
    else:
        sizes = static_shape(num_or_size_splits)
        if -1 in sizes:
            sizes[sizes.index(-1)] = whole - (sum(sizes) + 1)
        if sum(sizes) != whole:
            raise InvalidArgumentError(None, None, f"parts of {sizes} do not make up the {whole} of axis {axis}")
    parts, start = [], 0
    for length in sizes:
        parts.append(x[(slice(None),) * axis + (slice(start, start + length),)])
        start += length
    return parts


@op
def tile(input, multiples, name=None):
    """A tensor several times side by side along each axis."""
    x = _like(input)
    times = static_shape(multiples)
    if isinstance(x, StringTensor):
        return StringTensor(np.tile(x._array, times))
    return engine.tile(x, times)


@op
def repeat(input, repeats, axis=None, name=None):
    """Each element several times."""
    x = _like(input)
    if axis is None:
        x, axis = reshape(x, [-1]), 0
    axis = axis % x.ndim
    counts = np.broadcast_to(np.asarray(repeats.numpy() if hasattr(repeats, "numpy") else repeats), (x.shape[axis],))
    return gather(x, engine.tensor(np.repeat(np.arange(x.shape[axis], dtype=np.int32), counts)), axis=axis)


@op
def reverse(tensor, axis, name=None):
    """The elements in reverse order along axes."""
    x = _like(tensor)
    axes = [int(a) for a in np.atleast_1d(axis)]
    if isinstance(x, StringTensor):
        return StringTensor(np.flip(x._array, axes))
    return engine.flip(x, axes)


@op
def roll(input, shift, axis, name=None):
    """The elements moved along axes, those pushed out coming in again."""
    x = _like(input)
    for s, a in zip(np.atleast_1d(shift), np.atleast_1d(axis)):
        n = x.shape[int(a)]
        if n:
            places = (np.arange(n, dtype=np.int32) - int(s)) % n
            x = gather(x, engine.tensor(places), axis=int(a))
    return x


@op
def pad(tensor, paddings, mode="CONSTANT", constant_values=0, name=None):
    """More cells before and behind along each axis: a constant, or the tensor mirrored."""
    x = _like(tensor)
    sides = np.asarray(paddings.numpy() if hasattr(paddings, "numpy") else paddings).tolist()
    before, after = [int(b) for b, _ in sides], [int(a) for _, a in sides]
    mode = mode.upper()
    if mode == "CONSTANT":
        if isinstance(x, StringTensor):
            fill_with = strings_of(constant_values or b"")[()]
            return StringTensor(np.pad(x._array, sides, constant_values=fill_with))
        value = constant_values.numpy() if hasattr(constant_values, "numpy") else constant_values
        return engine.pad(x, before, after, float(value))
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise ValueError(f"Value of argument `mode` expected to be one of CONSTANT, REFLECT, SYMMETRIC, got {mode}")
    for axis, (b, a) in enumerate(zip(before, after)):
        if b or a:
            places = np.pad(np.arange(x.shape[axis], dtype=np.int32), (b, a), mode=mode.lower())
            x = engine.gather(x, engine.tensor(places), axis)
    return x


@op
def slice(input_, begin, size, name=None):
    """`size` elements from `begin` on along each axis; -1 takes the rest."""
    x = _like(input_)
    starts, sizes = static_shape(begin), static_shape(size)
    sizes = [d - s if n == -1 else n for d, s, n in zip(x.shape, starts, sizes)]
    if isinstance(x, StringTensor):
        return x[tuple(builtin_slice(s, s + n) for s, n in zip(starts, sizes))]
    return engine.slice(x, starts, sizes)


builtin_slice = __builtins__["slice"] if isinstance(__builtins__, dict) else __builtins__.slice


@op
def strided_slice(input_, begin, end, strides=None, name=None):
    """`x[begin:end:strides]` along each axis."""
    begin, end = static_shape(begin), static_shape(end)
    strides = static_shape(strides) if strides is not None else [1] * len(begin)
    return _like(input_)[tuple(builtin_slice(b, e, s) for b, e, s in zip(begin, end, strides))]


@op
def gather(params, indices, validate_indices=None, axis=None, batch_dims=0, name=None):
    """Slices along an axis, which the axes of the indices take the place of."""
    x, indices = _like(params), _like(indices)
    if isinstance(x, StringTensor):
        return StringTensor(np.asarray(np.take(x._array, indices.numpy(), axis=int(axis or 0)), object))
    batch_dims = int(batch_dims)
    if batch_dims < 0:
        batch_dims += indices.ndim
    axis = batch_dims if axis is None else int(axis) % x.ndim
    if raw_dtype(indices) not in ("int32", "int64"):
        indices = engine.cast(indices, "int32")
    if not batch_dims:
        return engine.gather(x, indices, axis)
    lead = list(x.shape[:batch_dims])
    if axis != batch_dims:
        order = [*range(batch_dims), axis, *(i for i in range(batch_dims, x.ndim) if i != axis)]
        moved = gather(engine.transpose(x, order), indices, batch_dims=batch_dims)
        n, m = indices.ndim, axis - batch_dims
        # The axes between go back before those of the indices.
        back = [*range(batch_dims), *range(n, n + m), *range(batch_dims, n), *range(n + m, moved.ndim)]
        return engine.transpose(moved, back)
    count = int(np.prod(lead))
    rows = engine.reshape(x, [count * x.shape[axis], *x.shape[axis + 1 :]])
    flat = engine.reshape(engine.cast(indices, "int64"), [count, -1])
    first = engine.binary("mul", engine.iota([count, 1], 0, "int64"), x.shape[axis])
    found = engine.gather(rows, engine.binary("add", flat, first), 0)
    return engine.reshape(found, [*indices.shape, *x.shape[axis + 1 :]])


@op
def gather_nd(params, indices, batch_dims=0, name=None, bad_indices_policy=""):
    """Slices picked by tuples of indices along the last axis of `indices`."""
    x, indices = _like(params), _like(indices)
    if isinstance(x, StringTensor):
        return StringTensor(np.asarray(x._array[tuple(np.moveaxis(indices.numpy(), -1, 0))], object))
    if batch_dims:
        lead = list(indices.shape[:-1])
        own = [engine.cast(engine.iota(lead, i, "int32"), raw_dtype(indices)) for i in range(batch_dims)]
        own = [engine.reshape(v, [*lead, 1]) for v in own]
        return gather_nd(x, engine.concat([*own, indices], -1))
    depth = indices.shape[-1]
    if depth == 0:
        return engine.broadcast_to(x, [*indices.shape[:-1], *x.shape])
    return engine.gather(engine.reshape(x, [-1, *x.shape[depth:]]), _flat_places(indices, x.shape), 0)


def _flat_places(indices, shape):
    """Tuples of indices along the last axis as places in row-major order."""
    depth = indices.shape[-1]
    steps = np.cumprod([1, *shape[1:depth][::-1]])[::-1].astype(np.int64)
    scaled = engine.binary("mul", engine.cast(indices, "int64"), engine.tensor(np.ascontiguousarray(steps)))
    return engine.reduce("sum", scaled, -1, False)


@op
def scatter_nd(indices, updates, shape, name=None):
    """Zeros with slices added at tuples of indices."""
    indices, updates, sizes = _like(indices), _like(updates), static_shape(shape)
    depth = indices.shape[-1]
    count = int(np.prod(sizes[:depth]))
    places = engine.reshape(_flat_places(indices, sizes), [-1])
    rows = engine.reshape(updates, [places.shape[0], *sizes[depth:]])
    number = raw_dtype(rows)
    rows = rows if number in ("float32", "float64", "int32", "int64") else engine.cast(rows, "float32" if "float" in number else "int64")
    return engine.reshape(engine.cast(engine.scatter_add(places, rows, 0, count), number), sizes)


@op
def tensor_scatter_nd_add(tensor, indices, updates, name=None):
    """A tensor with slices added at tuples of indices."""
    x = _like(tensor)
    return engine.binary("add", x, scatter_nd(indices, convert_to_tensor(updates, dtype_hint=x.dtype), x.shape))


@op
def tensor_scatter_nd_sub(tensor, indices, updates, name=None):
    """A tensor with slices subtracted at tuples of indices."""
    x = _like(tensor)
    return engine.binary("sub", x, scatter_nd(indices, convert_to_tensor(updates, dtype_hint=x.dtype), x.shape))


@op
def tensor_scatter_nd_update(tensor, indices, updates, name=None):
    """A tensor with slices replaced at tuples of indices."""
    x, indices = _like(tensor), _like(indices)
    updates = convert_to_tensor(updates, dtype_hint=x.dtype)
    rest = x.shape[indices.shape[-1] :]
    places = engine.reshape(_flat_places(indices, x.shape), [-1])
    table, rows = engine.reshape(x, [-1, *rest]), engine.reshape(updates, [places.shape[0], *rest])
    return engine.reshape(replaced_rows(table, places, rows), x.shape)


def replaced_rows(table, places, rows):
    """A table with `rows` at `places`; of several rows for one place the last is taken."""
    n, rest = places.shape[0], [1] * (table.ndim - 1)
    if n == 0:
        return table
    ordered, numbers = engine.sort(places)
    # The sort is stable: the last of several is followed by another place, or by none.
    changes = engine.binary("ne", engine.slice(ordered, [0], [n - 1]), engine.slice(ordered, [1], [n - 1]))
    is_last = engine.concat([changes, engine.full([1], True, "bool")], 0)
    from_one = engine.binary("add", engine.cast(numbers, "int64"), 1)
    from_one = engine.select(is_last, from_one, engine.full([n], 0, "int64"))
    taken = engine.scatter_add(ordered, from_one, 0, table.shape[0])
    new = engine.gather(rows, engine.binary("max", engine.binary("sub", taken, 1), 0), 0)
    is_new = engine.reshape(engine.binary("gt", taken, 0), [table.shape[0], *rest])
    return engine.select(engine.broadcast_to(is_new, table.shape), new, table)


def _scatter_reduce(kind):
    def scatter(tensor, indices, updates, name=None):
        x, indices = _like(tensor), _like(indices)
        places = _flat_places(indices, x.shape).numpy().reshape(-1)
        depth = indices.shape[-1]
        rows = np.array(x.numpy()).reshape(-1, *x.shape[depth:])
        new = np.asarray(convert_to_tensor(updates, dtype_hint=x.dtype).numpy()).reshape(len(places), *x.shape[depth:])
        getattr(np, kind).at(rows, places, new)
        return engine.tensor(rows.reshape(tuple(x.shape)))

    scatter.__name__ = f"tensor_scatter_nd_{kind[:3]}"
    scatter.__doc__ = f"A tensor with the {kind} of what was there and slices at tuples of indices; no gradient flows."
    return op(scatter)


tensor_scatter_nd_max = _scatter_reduce("maximum")
tensor_scatter_nd_min = _scatter_reduce("minimum")


@op
def one_hot(indices, depth, on_value=None, off_value=None, axis=None, dtype=None, name=None):
    """A new axis of `depth` that is on where the index says and off elsewhere."""
    indices = _like(indices)
    dtype = as_dtype(dtype or getattr(on_value, "dtype", None) or "float32")
    if raw_dtype(indices) not in ("int32", "int64"):
        indices = engine.cast(indices, "int32")
    depth = int(depth)
    at = engine.reshape(indices, [*indices.shape, 1])
    places = engine.cast(engine.iota([depth], 0, "int32"), raw_dtype(indices))
    hot = engine.binary("eq", at, places)
    if on_value is None and off_value is None:
        x = engine.cast(hot, dtype.name)
    else:
        on, off = (1 if on_value is None else on_value), (0 if off_value is None else off_value)
        x = engine.select(hot, convert_to_tensor(on, dtype), convert_to_tensor(off, dtype))
    axis = -1 if axis is None else int(axis)
    if axis in (-1, x.ndim - 1):
        return x
    order = list(range(x.ndim - 1))
    order.insert(axis % x.ndim, x.ndim - 1)
    return engine.transpose(x, order)


@op
def where(condition, x=None, y=None, name=None):
    """`x` where the condition is true and `y` elsewhere; with the condition alone, where it is true."""
    condition = _like(condition)
    if x is None and y is None:
        return engine.tensor(np.argwhere(condition.numpy()).astype(np.int64))
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    if isinstance(x, (StringTensor, str, bytes)) or isinstance(y, (StringTensor, str, bytes)):
        return StringTensor(np.asarray(np.where(condition.numpy(), strings_of(x), strings_of(y)), object))
    a, b = pair(x, y, "SelectV2")
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a, b = convert_to_tensor(a), convert_to_tensor(b)
    return engine.select(condition, a, b)


@op
def boolean_mask(tensor, mask, axis=None, name="boolean_mask"):
    """The slices where a mask is true."""
    x, mask = _like(tensor), _like(mask)
    axis = int(axis or 0)
    return x[(builtin_slice(None),) * axis + (mask,)]


@op
def sequence_mask(lengths, maxlen=None, dtype="bool", name=None):
    """True in the first so many cells of each row."""
    lengths = _like(lengths)
    maxlen = int(np.max(lengths.numpy(), initial=0)) if maxlen is None else int(maxlen)
    mask = engine.binary("lt", engine.iota([maxlen], 0, raw_dtype(lengths)), engine.reshape(lengths, [*lengths.shape, 1]))
    return mask if as_dtype(dtype) == "bool" else engine.cast(mask, as_dtype(dtype).name)


@op
def meshgrid(*args, indexing="xy", name=None):
    """Tensors that hold the coordinates of a grid."""
    vectors = [engine.reshape(_like(v), [-1]) for v in args]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    sizes = [vectors[i].shape[0] for i in order]
    grids = []
    for i, v in enumerate(vectors):
        at = [1] * len(sizes)
        at[order.index(i)] = v.shape[0]
        grids.append(engine.broadcast_to(engine.reshape(v, at), sizes))
    return grids


@op
def sort(values, axis=-1, direction="ASCENDING", name=None):
    """The elements in order along an axis."""
    return engine.sort(_like(values), int(axis), _descending(direction))[0]


@op
def argsort(values, axis=-1, direction="ASCENDING", stable=False, name=None):
    """Where the elements in order stood along an axis."""
    return engine.cast(engine.sort(_like(values), int(axis), _descending(direction))[1], "int32")


def _descending(direction):
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"direction is 'ASCENDING' or 'DESCENDING', not {direction!r}")
    return direction == "DESCENDING"


@op
def searchsorted(sorted_sequence, values, side="left", out_type="int32", name=None):
    """Where values would have to be put into sorted rows."""
    rows, values = _like(sorted_sequence), _like(values)
    compare = "lt" if side == "left" else "le"
    before = engine.binary(compare, engine.reshape(rows, [*rows.shape[:-1], 1, rows.shape[-1]]), engine.reshape(values, [*values.shape, 1]))
    return engine.reduce("sum", engine.cast(before, as_dtype(out_type).name), -1, False)


@op
def unique(x, out_idx="int32", name=None):
    """The different elements in the order they come, and which of them each element is."""
    values, _, index, _ = _unique(x)
    return Unique(values, engine.tensor(index.astype(as_dtype(out_idx).as_numpy_dtype)))


@op
def unique_with_counts(x, out_idx="int32", name=None):
    """As `unique`, with how often each comes."""
    values, _, index, counts = _unique(x)
    of = as_dtype(out_idx).as_numpy_dtype
    return UniqueWithCounts(values, engine.tensor(index.astype(of)), engine.tensor(counts.astype(of)))


def _unique(x):
    x = _like(x)
    array = x.numpy() if not isinstance(x, StringTensor) else x._array.astype(bytes)
    values, first, index, counts = np.unique(array, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    place = np.argsort(order)
    values = values[order]
    values = StringTensor(values.astype(object)) if isinstance(x, StringTensor) else engine.tensor(values)
    return values, first[order], place[index.reshape(-1)], counts[order]


class Unique(tuple):
    """The result of `unique`."""

    __slots__ = ()

    def __new__(cls, y, idx):
        return tuple.__new__(cls, (y, idx))

    y = property(lambda self: self[0])
    idx = property(lambda self: self[1])


class UniqueWithCounts(tuple):
    """The result of `unique_with_counts`."""

    __slots__ = ()

    def __new__(cls, y, idx, count):
        return tuple.__new__(cls, (y, idx, count))

    y = property(lambda self: self[0])
    idx = property(lambda self: self[1])
    count = property(lambda self: self[2])


@op
def dynamic_partition(data, partitions, num_partitions, name=None):
    """The rows of each part, as a list."""
    data, parts = _like(data), _like(partitions).numpy()
    return [gather(reshape(data, [-1, *data.shape[parts.ndim :]]), np.flatnonzero(parts.reshape(-1) == i).astype(np.int32)) for i in range(num_partitions)]


@op
def dynamic_stitch(indices, data, name=None):
    """Rows of several tensors at the places that indices say."""
    places = np.concatenate([_like(i).numpy().reshape(-1) for i in indices])
    rows = engine.concat([reshape(d, [-1, *_like(d).shape[_like(i).ndim :]]) for i, d in zip(indices, data)], 0)
    last = np.zeros(places.max() + 1, np.int32)
    last[places] = np.arange(len(places), dtype=np.int32)
    return engine.gather(rows, engine.tensor(last), 0)


@op
def linear_to_diag(diagonal):
    """A vector as the diagonal of a matrix."""
    x = _like(diagonal)
    n = x.shape[-1]
    return engine.binary("mul", engine.reshape(x, [*x.shape, 1]), eye(n, dtype=x.dtype))


@op
def bitcast(input, type, name=None):
    """The same bytes read as another type."""
    return engine.tensor(np.array(_like(input).numpy()).view(as_dtype(type).as_numpy_dtype))


@op
def guarantee_const(input, name=None):
    """The tensor itself."""
    return _like(input)


__all__ = ["constant"]
