"""Tensors, variables and control flow: what the rest of the backend stands on.

Tensors are the engine's: an operation on them is recorded and runs when somebody looks at a value. Shapes are known
when an operation is recorded, so shape inference is recording on placeholders and throwing the record away.
"""

import builtins
import contextlib
import functools

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.dtypes import result_type as keras_result_type
from keras.src.backend.common.keras_tensor import KerasTensor
from keras.src.backend.common.name_scope import name_scope  # noqa: F401
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.common.symbolic_scope import SymbolicScope
from keras.src.backend.config import floatx

from plimsoll._array import replaced_rows
from plimsoll._variable import init_scope

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import record

SUPPORTS_SPARSE_TENSORS = False
SUPPORTS_RAGGED_TENSORS = False
SUPPORTS_COMPLEX_DTYPES = False
IS_THREAD_SAFE = True

Tensor = engine.Tensor


@functools.lru_cache(maxsize=4096)
def _result_type(floatx, *types):
    return keras_result_type(*types)


def result_type(*types):
    """Keras' promotion of types; remembered, since every operation asks."""
    return _result_type(floatx(), *types)


class Variable(KerasVariable):
    """A state of the session: reading gives its value at that point of the record, assigning adds to the record."""

    def _initialize(self, value):
        self._value = engine.Variable(convert_to_tensor(value, self._dtype), self._name, self._trainable)

    def _initialize_with_initializer(self, initializer):
        # At once, also where a step that is being traced makes the variable: an optimizer its slots, say.
        with init_scope():
            super()._initialize_with_initializer(initializer)

    def _direct_assign(self, value):
        self._value.assign(value)

    def _convert_to_tensor(self, value, dtype=None):
        return convert_to_tensor(value, dtype=dtype)

    @property
    def value(self):
        if in_stateless_scope():
            value = get_stateless_scope().get_current_value(self)
            if value is not None:
                return self._maybe_autocast(value)
        if self._value is None:
            # Not made yet: a placeholder for shape inference.
            return self._maybe_autocast(self._initializer(self._shape, dtype=self._dtype))
        return self._maybe_autocast(self._value.value())

    def numpy(self):
        return convert_to_numpy(self.value)

    def __array__(self, dtype=None, copy=None):
        array = convert_to_numpy(self.value)
        return array if dtype is None else array.astype(dtype)


def convert_to_tensor(x, dtype=None, sparse=None, ragged=None):
    """`x` as a tensor, of `dtype` or the one that Keras gives it."""
    if sparse:
        raise ValueError("`sparse=True` is not supported with the plimsoll backend")
    if ragged:
        raise ValueError("`ragged=True` is not supported with the plimsoll backend")
    if dtype is not None:
        dtype = standardize_dtype(dtype)
    if isinstance(x, KerasVariable):
        x = x.value
    elif isinstance(x, engine.Variable):
        x = x.value()
    if isinstance(x, Tensor):
        return x if dtype is None or x.dtype == dtype else engine.cast(x, dtype)
    if isinstance(x, (bool, int, float)):
        return engine.full((), x, dtype or result_type(type(x)))
    if isinstance(x, (list, tuple)) and any(isinstance(leaf, (Tensor, KerasVariable)) for leaf in tree.flatten(x)):
        return _stack_nested(x, dtype)
    return _from_host(x, dtype)


def _from_host(x, dtype):
    if isinstance(x, (np.ndarray, np.generic)):
        array = x
    elif isinstance(x, (list, tuple)) and not hasattr(x, "__array__"):
        leaves = tree.flatten(x)
        if any(leaf is None or isinstance(leaf, KerasTensor) for leaf in leaves):
            raise ValueError(f"cannot convert to a tensor: {x!r}")
        dtype = dtype or result_type(*{getattr(leaf, "dtype", type(leaf)) for leaf in leaves})
        array = np.asarray(x)
    elif x is None or isinstance(x, (str, KerasTensor)) or not hasattr(x, "__array__"):
        raise ValueError(f"cannot convert to a tensor: {x!r} of type {type(x).__name__}")
    else:
        array = np.asarray(x)
    if dtype is None:
        dtype = result_type(standardize_dtype(array.dtype))
    return engine.tensor(array, dtype)


def _stack_nested(x, dtype):
    dtype = dtype or result_type(*{getattr(leaf, "dtype", type(leaf)) for leaf in tree.flatten(x)})
    parts = [convert_to_tensor(part, dtype) for part in x]
    return engine.concat([engine.reshape(part, (1, *part.shape)) for part in parts], 0)


def convert_to_numpy(x):
    """The value on the host: everything recorded that it needs runs now."""
    if isinstance(x, KerasVariable):
        x = x.value
    return np.array(x.numpy() if isinstance(x, Tensor) else x)


def is_tensor(x):
    return isinstance(x, Tensor)


def shape(x):
    return tuple(x.shape)


def cast(x, dtype):
    return convert_to_tensor(x, dtype=dtype)


def random_seed_dtype():
    return "int64"


# Host functions


def on_host(function, inputs, outputs):
    """`function` over NumPy arrays, for what has no primitive: decompositions, results whose shape depends on values.

    `outputs` are the shapes and types of the results, used where nothing is computed (shape inference); `None` when they
    depend on values. In a traced function this asks for the values, so that function runs step by step instead.
    No gradient flows through.
    """
    tensors = [convert_to_tensor(x) for x in inputs]
    if record.in_shape_inference() and outputs is not None:
        return [engine.full(shape, 0, dtype) for shape, dtype in outputs]
    results = function(*[convert_to_numpy(x) for x in tensors])
    results = results if isinstance(results, tuple) else (results,)
    types = [dtype for _, dtype in outputs] if outputs is not None else [None] * len(results)
    return [convert_to_tensor(np.asarray(r), dtype) for r, dtype in zip(results, types)]


# Shape inference


def compute_output_spec(fn, *args, **kwargs):
    """The shapes and types that `fn` returns for placeholders of the arguments' shapes.

    Unknown sizes are tried as two different primes; a size of the result that changes with them is unknown too.
    """
    first = _outputs_with(83, fn, args, kwargs)
    unknown = any(isinstance(x, KerasTensor) and None in x.shape for x in tree.flatten((args, kwargs)))
    if not unknown:
        return first
    second = _outputs_with(89, fn, args, kwargs)
    flat = [_merged_spec(a, b) for a, b in zip(tree.flatten(first), tree.flatten(second))]
    return tree.pack_sequence_as(first, flat)


def _outputs_with(size, fn, args, kwargs):
    def is_outline(x):
        # A value that is inferred around this, or traced, has no more than that either.
        return isinstance(x, KerasTensor) or isinstance(x, Tensor) and record.is_symbolic(x)

    leaves = tree.flatten((args, kwargs))
    types = [([size if n is None else n for n in x.shape], x.dtype) for x in leaves if is_outline(x)]
    with StatelessScope(), SymbolicScope(), record.shape_inference(types) as placeholders:
        placeholders = iter(placeholders)
        flat = [next(placeholders) if is_outline(x) else x for x in leaves]
        args, kwargs = tree.pack_sequence_as((args, kwargs), flat)
        return tree.map_structure(_outline, fn(*args, **kwargs))


def _outline(x):
    """What remains of a result when its record is thrown away."""
    if isinstance(x, (Tensor, KerasVariable)):
        return KerasTensor(x.shape, standardize_dtype(x.dtype))
    return x


def _merged_spec(a, b):
    if not isinstance(a, KerasTensor):
        return a
    sizes = [m if m == n else None for m, n in zip(a.shape, b.shape)]
    return KerasTensor(sizes, a.dtype)


# Control flow


def cond(pred, true_fn, false_fn):
    """One branch where the predicate can be looked at, a choice between the results of both in a trace."""
    if isinstance(pred, KerasVariable):
        pred = pred.value
    if isinstance(pred, Tensor) and record.is_symbolic(pred):
        return _choose_branch(pred, true_fn, false_fn)
    return true_fn() if pred else false_fn()


class _Branch(StatelessScope):
    """Keeps what a branch assigns apart, on top of what the scope around it says."""

    def __init__(self):
        super().__init__(initialize_variables=False)
        self.assigned = {}

    def add_update(self, update):
        self.assigned[id(update[0])] = update[0]
        super().add_update(update)

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:
            value = self.original_scope.get_current_value(variable)
        return value


def _choose_branch(pred, true_fn, false_fn):
    """Records both branches; variables that either assigns get the chosen value."""
    scopes, results = (_Branch(), _Branch()), []
    for scope, branch in zip(scopes, (true_fn, false_fn)):
        with scope:
            results.append(branch())
    for variable in (scopes[0].assigned | scopes[1].assigned).values():
        values = []
        for scope in scopes:
            with scope:
                values.append(convert_to_tensor(variable.value, variable._dtype))
        variable.assign(_choose(pred, *values))
    return tree.map_structure(lambda a, b: None if a is None else _choose(pred, a, b), *results)


def _choose(pred, a, b):
    a, b = convert_to_tensor(a), convert_to_tensor(b)
    dtype = a.dtype if a.dtype == b.dtype else result_type(a.dtype, b.dtype)
    return engine.select(cast(pred, "bool"), cast(a, dtype), cast(b, dtype))


def switch(index, branches, *operands):
    index = convert_to_tensor(index, "int32")
    if not record.is_symbolic(index):
        place = builtins.min(builtins.max(int(index), 0), len(branches) - 1)
        return branches[place](*operands)
    result = branches[-1](*operands)
    for place in reversed(range(len(branches) - 1)):
        before = engine.binary("le", index, convert_to_tensor(place, "int32"))
        chosen = branches[place](*operands)
        result = tree.map_structure(functools.partial(_choose, before), chosen, result)
    return result


def while_loop(cond, body, loop_vars, maximum_iterations=None):
    is_sequence = isinstance(loop_vars, (tuple, list))
    values = tuple(loop_vars) if is_sequence else (loop_vars,)
    values = tree.map_structure(convert_to_tensor, values)
    if record.in_shape_inference():
        values = _as_tuple(body(*values))
        return values if is_sequence else values[0]
    turns = 0
    while (maximum_iterations is None or turns < int(maximum_iterations)) and bool(cond(*values)):
        values = _as_tuple(body(*values))
        turns += 1
    return values if is_sequence else values[0]


def _as_tuple(x):
    return tuple(x) if isinstance(x, (list, tuple)) else (x,)


def fori_loop(lower, upper, body_fun, init_val):
    value = init_val
    for i in range(int(lower), int(upper)):
        value = body_fun(convert_to_tensor(i, "int32"), value)
    return value


def map(f, xs):
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


def scan(f, init, xs=None, length=None, reverse=False, unroll=1):
    """`f(carry, x) -> (carry, y)` along the leading axis, written out step by step in the record."""
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    if not isinstance(unroll, bool) and (not isinstance(unroll, int) or unroll < 1):
        raise ValueError(f"`unroll` must be an positive integer or boolean. Received: unroll={unroll}")
    if xs is None and length is None:
        raise ValueError("Got no `xs` to scan over and `length` not provided.")
    xs = tree.map_structure(convert_to_tensor, xs) if xs is not None else None
    steps = int(length) if length is not None else tree.flatten(xs)[0].shape[0]
    carry = tree.map_structure(convert_to_tensor, init)
    ys = []
    for i in reversed(range(steps)) if reverse else range(steps):
        x = None if xs is None else tree.map_structure(lambda t: t[i], xs)
        carry, y = f(carry, x)
        ys.append(y if y is not None else tree.map_structure(_zeros_like, carry))
    if reverse:
        ys.reverse()
    return carry, tree.map_structure(lambda *parts: stack([convert_to_tensor(p) for p in parts]), *ys)


def associative_scan(f, elems, reverse=False, axis=0):
    """All prefixes under an associative `f`, in log2(n) rounds over the whole axis."""
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    flat = [convert_to_tensor(e) for e in tree.flatten(elems)]
    axes = [axis + e.ndim if axis < 0 else axis for e in flat]
    size = flat[0].shape[axes[0]]
    if any(e.shape[a] != size for e, a in zip(flat, axes)):
        raise ValueError(
            "Array inputs to associative_scan must have the same first dimension. "
            f"(saw: {[e.shape for e in flat]})"
        )
    if reverse:
        flat = [engine.flip(e, [a]) for e, a in zip(flat, axes)]
    distance = 1
    while distance < size:
        early = [_part(e, a, 0, size - distance) for e, a in zip(flat, axes)]
        late = [_part(e, a, distance, size) for e, a in zip(flat, axes)]
        both = f(tree.pack_sequence_as(elems, early), tree.pack_sequence_as(elems, late))
        heads = [_part(e, a, 0, distance) for e, a in zip(flat, axes)]
        flat = [engine.concat([h, convert_to_tensor(t)], a) for h, t, a in zip(heads, tree.flatten(both), axes)]
        distance *= 2
    if reverse:
        flat = [engine.flip(e, [a]) for e, a in zip(flat, axes)]
    return tree.pack_sequence_as(elems, flat)


def vectorized_map(function, elements):
    """`function` over the entries of the leading axis, written out one by one."""
    elements = tree.map_structure(convert_to_tensor, elements)
    size = tree.flatten(elements)[0].shape[0]
    results = [function(tree.map_structure(lambda t: t[i], elements)) for i in range(size)]
    return tree.map_structure(lambda *parts: stack([convert_to_tensor(p) for p in parts]), *results)


# Pieces of tensors


def stack(xs):
    return engine.concat([engine.reshape(x, (1, *x.shape)) for x in xs], 0)


def _zeros_like(x):
    return engine.full(x.shape, 0, x.dtype)


def _part(x, axis, start, stop):
    starts, sizes = [0] * x.ndim, list(x.shape)
    starts[axis], sizes[axis] = start, stop - start
    return engine.slice(x, starts, sizes, [1] * x.ndim)


def unstack(x, num=None, axis=0):
    x = convert_to_tensor(x)
    axis = axis + x.ndim if axis < 0 else axis
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    return [engine.reshape(_part(x, axis, i, i + 1), rest) for i in range(x.shape[axis])]


def slice(inputs, start_indices, shape):
    inputs = convert_to_tensor(inputs)
    if len(start_indices) != len(shape):
        raise ValueError(
            "Length of `start_indices` must match length of `shape`. "
            f"Received: start_indices={start_indices}, shape={shape}"
        )
    starts, known = _starts(start_indices)
    shape = [inputs.shape[i] - int(starts[i]) if n == -1 else int(n) for i, n in enumerate(shape)]
    if known:
        starts = [builtins.min(builtins.max(s, 0), n - m) for s, n, m in zip(starts, inputs.shape, shape)]
        return engine.slice(inputs, starts, shape, [1] * inputs.ndim)
    for axis, (start, size) in enumerate(zip(starts, shape)):
        inputs = engine.gather(inputs, _places(start, size, inputs.shape[axis]), axis)
    return inputs


def _starts(start_indices):
    """The start of each axis: Python integers where they can be looked at, tensors in a trace."""
    if isinstance(start_indices, (Tensor, KerasVariable)):
        start_indices = unstack(start_indices)
    starts = [s.value if isinstance(s, KerasVariable) else s for s in start_indices]
    known = not any(isinstance(s, Tensor) and record.is_symbolic(s) for s in starts)
    return ([int(s) for s in starts] if known else starts), known


def _places(start, size, limit):
    """`size` places from `start` on, moved back as far as needed to lie below `limit`."""
    start = convert_to_tensor(start, "int32")
    last = convert_to_tensor(limit - size, "int32")
    start = engine.binary("max", engine.binary("min", start, last), convert_to_tensor(0, "int32"))
    return engine.binary("add", engine.iota((size,), 0, "int32"), start)


def slice_update(inputs, start_indices, updates):
    """`inputs` with `updates` written over the box that begins at `start_indices`."""
    inputs = convert_to_tensor(inputs)
    updates = convert_to_tensor(updates, inputs.dtype)
    starts, known = _starts(start_indices)
    if known:
        starts = [builtins.min(builtins.max(s, 0), n - m) for s, n, m in zip(starts, inputs.shape, updates.shape)]
        after = [n - s - m for s, n, m in zip(starts, inputs.shape, updates.shape)]
        ones = engine.full(updates.shape, 1, "int32")
        inside = engine.cast(engine.pad(ones, starts, after), "bool")
        return engine.select(inside, engine.pad(updates, starts, after), inputs)
    inside = engine.full((), True, "bool")
    for axis, start in enumerate(starts):
        places = _places(start, updates.shape[axis], inputs.shape[axis])
        hit = engine.one_hot(places, inputs.shape[axis], "int32")
        hit = engine.cast(engine.reduce("sum", hit, [0], False), "bool")
        spread = [1] * inputs.ndim
        spread[axis] = inputs.shape[axis]
        inside = engine.binary("and", inside, engine.reshape(hit, spread))
        updates = engine.scatter_add(places, updates, axis, inputs.shape[axis])
    return engine.select(engine.broadcast_to(inside, inputs.shape), updates, inputs)


def _flat_places(indices, shape):
    """The place of each index row in a tensor whose leading axes, `shape`, are made into one."""
    indices = convert_to_tensor(indices)
    flat = None
    for column, size in enumerate(shape):
        part = _part(indices, indices.ndim - 1, column, column + 1)
        part = engine.cast(engine.reshape(part, indices.shape[:-1]), "int64")
        size_t = convert_to_tensor(size, "int64")
        wrapped = engine.select(engine.binary("lt", part, convert_to_tensor(0, "int64")), engine.binary("add", part, size_t), part)
        flat = wrapped if flat is None else engine.binary("add", engine.binary("mul", flat, size_t), wrapped)
    return engine.reshape(flat, (-1,)) if flat.ndim != 1 else flat


def scatter(indices, values, shape):
    indices, values = convert_to_tensor(indices), convert_to_tensor(values)
    shape = tuple(int(n) for n in shape)
    depth = indices.shape[-1]
    rows = int(np.prod(shape[:depth], dtype=np.int64))
    places = _flat_places(indices, shape[:depth])
    values = engine.reshape(values, (places.shape[0], *shape[depth:]))
    dtype = values.dtype
    if dtype == "bool":
        values = engine.cast(values, "int32")
    result = engine.reshape(engine.scatter_add(places, values, 0, rows), shape)
    return cast(result, dtype)


def scatter_update(inputs, indices, updates, reduction=None):
    """`inputs` with `updates` written, or combined, at `indices`; of several writes to one place the last counts."""
    inputs = convert_to_tensor(inputs)
    updates = convert_to_tensor(updates, inputs.dtype)
    indices = convert_to_tensor(indices)
    depth = indices.shape[-1]
    lead, rest = inputs.shape[:depth], inputs.shape[depth:]
    rows = int(np.prod(lead, dtype=np.int64))
    places = _flat_places(indices, lead)
    updates = engine.reshape(updates, (places.shape[0], *rest))
    table = engine.reshape(inputs, (rows, *rest))
    if reduction == "add":
        table = engine.binary("add", table, engine.scatter_add(places, updates, 0, rows))
    elif reduction is None:
        table = replaced_rows(table, places, updates)
    elif reduction in ("max", "min", "mul"):
        table = _scatter_in_order(table, places, updates, reduction)
    else:
        raise ValueError(f"Unsupported reduction: {reduction}")
    return engine.reshape(table, inputs.shape)


def _scatter_in_order(table, places, updates, reduction):
    """Rounds in which each place is met once at most: the k-th update of a place is in round k."""
    count, rows = places.shape[0], table.shape[0]
    if count == 0:
        return table
    row = engine.reshape(places, (count, 1))
    same = engine.binary("eq", row, engine.reshape(places, (1, count)))
    earlier = engine.binary("gt", engine.iota((count, count), 0, "int32"), engine.iota((count, count), 1, "int32"))
    nth = engine.reduce("sum", engine.cast(engine.binary("and", same, earlier), "int32"), [1], False)
    rounds = count if record.is_symbolic(nth) else int(nth.numpy().max()) + 1
    for turn in range(rounds):
        now = engine.binary("eq", nth, convert_to_tensor(turn, "int32"))
        table = _write_once(table, places, updates, now, lambda old, new: engine.binary(reduction, old, new))
    return table


def _write_once(table, places, updates, keep, combine):
    """`combine(old, new)` at the places that are kept, each of which is met once."""
    rows = table.shape[0]
    flags = engine.reshape(keep, (keep.shape[0], *[1] * (updates.ndim - 1)))
    zeros = _zeros_like(updates)
    new = engine.scatter_add(places, engine.select(engine.broadcast_to(flags, updates.shape), updates, zeros), 0, rows)
    hit = engine.scatter_add(places, engine.cast(keep, "int32"), 0, rows)
    hit = engine.reshape(engine.cast(hit, "bool"), (rows, *[1] * (table.ndim - 1)))
    return engine.select(engine.broadcast_to(hit, table.shape), combine(table, new), table)


# Gradients


def stop_gradient(variable):
    return engine.stop_gradient(convert_to_tensor(variable))


def custom_gradient(fun):
    """`fun(*args) -> (outputs, gradient function)` with that function in place of the recorded derivative."""

    @functools.wraps(fun)
    def wrapped(*args, **kwargs):
        return record.with_gradient(fun, args, kwargs)

    return wrapped


def remat(f):
    """`f` itself: what is computed again is chosen by the planner, for every step and by its memory limit."""
    return f


@contextlib.contextmanager
def device_scope(device_name):
    yield
