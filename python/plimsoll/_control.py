"""Control flow by functions. Python decides where a value can be looked at; a trace that cannot look runs step by step instead."""

import contextlib
import sys

import numpy as np

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._array import stack
from plimsoll._core import convert_to_tensor


def cond(pred, true_fn=None, false_fn=None, name=None):
    """What one of two functions gives."""
    return true_fn() if bool(pred) else false_fn()


def case(pred_fn_pairs, default=None, exclusive=False, strict=False, name="case"):
    """What the function of the first true condition gives."""
    pairs = pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs
    for pred, fn in pairs:
        if bool(pred):
            return fn()
    if default is None:
        raise ValueError("case: no condition is true, and there is no default")
    return default()


def switch_case(branch_index, branch_fns, default=None, name="switch_case"):
    """What the function of this number gives."""
    functions = branch_fns if isinstance(branch_fns, dict) else dict(enumerate(branch_fns)) if callable(branch_fns[0]) else dict(branch_fns)
    index = int(branch_index)
    if index in functions:
        return functions[index]()
    return default() if default is not None else functions[max(functions)]()


def while_loop(cond, body, loop_vars, shape_invariants=None, parallel_iterations=10, back_prop=True, swap_memory=False, maximum_iterations=None, name=None):
    """Applies `body` while `cond` says so."""
    loop_vars = nest.map_structure(convert_to_tensor, loop_vars)
    count = 0
    limit = sys.maxsize if maximum_iterations is None else int(maximum_iterations)
    while count < limit and bool(cond(*loop_vars)):
        made = body(*loop_vars)
        made = made if isinstance(made, (list, tuple)) else (made,)
        loop_vars = nest.pack_sequence_as(loop_vars, [convert_to_tensor(x) for x in nest.flatten(made)])
        count += 1
    return loop_vars


def map_fn(fn, elems, dtype=None, parallel_iterations=None, back_prop=True, swap_memory=False, infer_shape=True, name=None, fn_output_signature=None):
    """What a function makes of each row."""
    elems = nest.map_structure(convert_to_tensor, elems)
    count = nest.flatten(elems)[0].shape[0]
    rows = [fn(nest.map_structure(lambda x: x[i], elems)) for i in range(count)]
    if not rows:
        raise ValueError("map_fn: there are no rows")
    return _stacked(rows)


vectorized_map = map_fn


def _stacked(rows):
    flat = [nest.flatten(row) for row in rows]
    return nest.pack_sequence_as(rows[0], [stack(parts) for parts in zip(*flat)])


def foldl(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, name=None):
    """What a function makes of all rows, one after another."""
    return _folded(fn, elems, initializer, False)[-1]


def foldr(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, name=None):
    """As `foldl`, from the last row on."""
    return _folded(fn, elems, initializer, True)[-1]


def scan(fn, elems, initializer=None, parallel_iterations=10, back_prop=True, swap_memory=False, infer_shape=True, reverse=False, name=None):
    """As `foldl`, with all that comes in between."""
    made = _folded(fn, elems, initializer, reverse)
    return _stacked(made[::-1] if reverse else made)


def _folded(fn, elems, initializer, reverse):
    elems = nest.map_structure(convert_to_tensor, elems)
    count = nest.flatten(elems)[0].shape[0]
    row = lambda i: nest.map_structure(lambda x: x[i], elems)
    order = list(range(count))[:: -1 if reverse else 1]
    if initializer is None:
        now, order = row(order[0]), order[1:]
        made = [now]
    else:
        now, made = nest.map_structure(convert_to_tensor, initializer), []
    for i in order:
        now = fn(now, row(i))
        made.append(now)
    return made or [now]


@contextlib.contextmanager
def device(device_name):
    """Names where to compute. There is one device, and names of others fall back on it, as TensorFlow's do."""
    if callable(device_name):
        device_name = None
    if device_name is not None and not isinstance(device_name, str):
        device_name = getattr(device_name, "name", str(device_name))
    if device_name and not any(kind in device_name.upper() for kind in ("CPU", "GPU", "TPU", "/JOB", "/TASK", "/REPLICA")):
        raise ValueError(f"Unknown attribute {device_name!r} is not a device: use for example '/CPU:0' or '/GPU:0'")
    yield


_scopes = []


class name_scope:
    """Names for what is made inside."""

    def __init__(self, name):
        self._name = name

    name = property(lambda self: self._name)

    def __enter__(self):
        _scopes.append(self._name)
        return "/".join(_scopes) + "/"

    def __exit__(self, *_):
        _scopes.pop()


@contextlib.contextmanager
def control_dependencies(control_inputs):
    """What is recorded runs in the order in which it was recorded; there is nothing to add."""
    yield


def group(*inputs, **kwargs):
    """All of them done: they are, in order."""
    return None


def tuple_(tensors, control_inputs=None, name=None):
    """The tensors themselves."""
    return list(tensors)


def no_op(name=None):
    """Nothing."""


def print_(*inputs, output_stream=sys.stderr, summarize=3, sep=" ", end="\n", name=None):
    """Prints values, to the standard error as TensorFlow does."""
    streams = {"sys.stdout": sys.stdout, "sys.stderr": sys.stderr}
    stream = streams.get(output_stream, output_stream) if isinstance(output_stream, str) else output_stream
    print(*(_printed(x, summarize) for x in inputs), sep=sep, end=end, file=stream)


def _printed(x, summarize):
    if not hasattr(x, "numpy"):
        return x
    value = x.numpy()
    edge = 3 if summarize == 3 else max(int(summarize), 0)
    threshold = sys.maxsize if summarize == -1 else 2 * edge
    with np.printoptions(edgeitems=max(edge, 1), threshold=threshold):
        return value.decode() if isinstance(value, bytes) else str(value)


def Assert(condition, data, summarize=None, name=None):
    """Raises unless the condition is true."""
    from plimsoll.errors import InvalidArgumentError

    if not bool(condition):
        raise InvalidArgumentError(None, None, f"assertion failed: {[_printed(d, summarize or 3) for d in data]}")


def executing_eagerly():
    """Whether values can be looked at: not while a function is traced."""
    from plimsoll._core import graph_building

    return engine.trace_depth() == 0 and not graph_building()


def inside_function():
    """Whether a function is being traced."""
    return engine.trace_depth() > 0


def get_static_value(tensor, partial=False):
    """The value if it can be known, else None."""
    x = convert_to_tensor(tensor)
    return None if getattr(x, "is_symbolic", False) else x.numpy()


def timestamp(name=None):
    """Seconds since 1970; of the trace where a function is traced."""
    import time

    from plimsoll._core import constant

    return constant(time.time(), "float64")
