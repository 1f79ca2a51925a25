"""Python functions in pipelines: traced where possible, called where not."""

import numpy as np

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._core import Tensor
from plimsoll._core import convert_to_tensor
from plimsoll._types import TensorSpec
from plimsoll.data._dataset import Dataset
from plimsoll.data._dataset import _called
from plimsoll.data._dataset import _described
from plimsoll.data._dataset import _peeked
from plimsoll.data._dataset import for_engine
from plimsoll.data._dataset import in_python
from plimsoll.data._dataset import lists_as_leaves


class _NotTraced(Exception):
    """The function has to be called for every element."""


def _result(function, value):
    return lists_as_leaves(_called(function, value), convert_to_tensor)


def _trace(data, function):
    """The function as a program of an element's components, and the structure of what it gives."""
    spec = data._inner.spec()
    if any(dtype == "string" or dims is None or None in dims for dtype, dims in spec):
        raise _NotTraced
    given = engine.trace_begin([(dims, dtype) for dtype, dims in spec])
    try:
        made = _result(function, nest.pack_sequence_as(data._structure, given))
        leaves = [convert_to_tensor(x) for x in nest.flatten(made)]
        if not leaves or not all(isinstance(x, Tensor) for x in leaves):
            raise _NotTraced
        program = engine.trace_end(leaves)
    except (engine.UntraceableError, _NotTraced):
        engine.trace_abort()
        raise _NotTraced from None
    except BaseException:
        engine.trace_abort()
        raise
    return program, made


def mapped(data, function):
    """`data.map(function)`."""
    try:
        program, made = _trace(data, function)
        return Dataset(data._inner.map_program(program), made)
    except (_NotTraced, engine.UntraceableError):
        pass
    structure = data._structure

    def call(parts):
        made = _result(function, nest.pack_sequence_as(structure, in_python(parts)))
        return for_engine(nest.flatten(made))

    first = next(iter(data), None)
    if first is None:
        return data.take(0)
    made = _result(function, first)
    specs = [TensorSpec([None] * len(x.shape), x.dtype) for x in map(convert_to_tensor, nest.flatten(made))]
    return Dataset(data._inner.map_python(call, _described(specs)), made)


def filtered(data, predicate):
    """`data.filter(predicate)`."""
    try:
        program, _ = _trace(data, predicate)
        return data._with(data._inner.filter_program(program))
    except (_NotTraced, engine.UntraceableError):
        pass
    structure = data._structure
    test = lambda parts: bool(_called(predicate, nest.pack_sequence_as(structure, in_python(parts))))
    return data._with(data._inner.filter_python(test))


def interleaved(data, function, cycle, block, parallel):
    """`data.interleave(function, ..)`."""
    structure = data._structure
    make = lambda value: _called(function, value)
    first = next(iter(data), None)
    if first is None:
        raise ValueError("the data set is empty, so what the function makes of its elements cannot be told")
    made = make(first)
    if not isinstance(made, Dataset):
        raise TypeError(f"`map_func` must return a `Dataset` object. Got {type(made)}.")
    specs = [TensorSpec(_open(spec.shape), spec.dtype) for spec in nest.flatten(made.element_spec)]
    inner_of = lambda parts: make(nest.pack_sequence_as(structure, in_python(parts)))._inner
    inner = data._inner.interleave(inner_of, _described(specs), cycle, block, parallel)
    return Dataset(inner, made._structure)


def _open(shape):
    return [None] * len(shape)


def grouped(data, key_func, reduce_func, window_size, window_size_func):
    """`data.group_by_window(..)`."""

    def elements():
        groups = {}
        for value in data:
            key = int(_called(key_func, value))
            group = groups.setdefault(key, [])
            group.append(value)
            size = window_size if window_size is not None else int(window_size_func(key))
            if len(group) == size:
                yield from reduce_func(convert_to_tensor(np.int64(key)), _of_elements(groups.pop(key)))
        for key, group in groups.items():
            yield from reduce_func(convert_to_tensor(np.int64(key)), _of_elements(group))

    return Dataset.from_generator(elements, output_signature=_peeked(elements))


def _of_elements(values):
    spec = nest.map_structure(lambda x: TensorSpec(_open(x.shape), x.dtype), values[0])
    return Dataset.from_generator(lambda: iter(values), output_signature=spec)


def bucketed(data, length_of, boundaries, sizes, drop_remainder):
    """`data.bucket_by_sequence_length(..)`."""

    def key(*value):
        return int(np.searchsorted(boundaries, int(length_of(*value)), side="right"))

    def batch(k, group):
        return group.padded_batch(int(sizes[int(k)]), drop_remainder=drop_remainder)

    return grouped(data, key, batch, None, lambda k: int(sizes[k]))
