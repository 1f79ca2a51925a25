"""`Dataset`: names, argument orders and defaults of `tf.data`, over the engine's pipelines.

The engine knows flat lists of components. Structures (tuples, dicts) are kept here and put around what it gives.
"""

import contextlib

import numpy as np

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._core import ENGINE_TYPES
from plimsoll._core import StringTensor
from plimsoll._core import Tensor
from plimsoll._core import _WIDER
from plimsoll._core import _holds_strings
from plimsoll._core import convert_to_tensor
from plimsoll._core import is_tensor
from plimsoll._core import strings_of
from plimsoll._types import TensorShape
from plimsoll._types import TensorSpec
from plimsoll._types import TypeSpec
from plimsoll._types import as_dtype
from plimsoll.errors import OutOfRangeError

AUTOTUNE = -1
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2


class Options:
    """Accepted as TensorFlow has them; the engine decides such things by measuring."""

    def __init__(self):
        self.deterministic = None
        self.autotune = _Free()
        self.threading = _Free()
        self.experimental_optimization = _Free()
        self.experimental_distribute = _Free()
        self.experimental_deterministic = None

    def merge(self, other):
        """These options with another's on top."""
        merged = Options()
        for options in (self, other):
            vars(merged).update({key: value for key, value in vars(options).items() if value is not None})
        return merged


class _Free:
    """Attributes of any name."""


def in_python(parts):
    """The engine's components as tensors."""
    return [part if isinstance(part, Tensor) else _strings(*part) for part in parts]


def _strings(sizes, strings):
    array = np.empty(len(strings), object)
    array[:] = strings
    return StringTensor(array.reshape(sizes))


def for_engine(values):
    """Tensors as the engine's components."""
    out = []
    for value in values:
        value = convert_to_tensor(value)
        out.append(value if isinstance(value, Tensor) else (list(value.shape), list(value._array.reshape(-1))))
    return out


def _described(specs):
    return [(spec.dtype.name, None if _unknown(spec.shape) else list(spec.shape)) for spec in specs]


def _unknown(shape):
    return not shape and shape is TensorShape(None)


def _spec_of(component):
    dtype, dims = component
    return TensorSpec(dims, dtype)


def as_array(value):
    """Numbers as an array that the engine reads in place; a copy only where they have another type."""
    if isinstance(value, Tensor):
        return np.asarray(value.numpy())
    if is_tensor(value):
        return np.asarray(convert_to_tensor(value).numpy())
    plain = not hasattr(value, "dtype")
    array = np.asarray(value)
    name = array.dtype.name
    if plain and name == "float64":
        name = "float32"
    elif plain and name == "int64":
        name = "int32" if array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31) else name
    name = _WIDER.get(name, name)
    if name not in ENGINE_TYPES:
        raise ValueError(f"arrays of type {array.dtype} are not supported in a data set")
    return array if array.dtype.name == name else array.astype(as_dtype(name).as_numpy_dtype)


def _source(values):
    """The rows of several arrays side by side: numbers and strings."""
    numbers = [(i, v) for i, v in enumerate(values) if not isinstance(v, StringTensor)]
    if len(numbers) == len(values):
        return engine.Dataset.from_arrays([v for _, v in numbers])
    parts = []
    for value in values:
        if not isinstance(value, StringTensor):
            parts.append(engine.Dataset.from_arrays([value]))
            continue
        array = value._array
        flat = engine.Dataset.from_strings(list(array.reshape(-1)))
        for size in array.shape[:0:-1]:
            flat = flat.batch(size, True)
        parts.append(flat)
    return parts[0] if len(parts) == 1 else engine.Dataset.zip(parts)


def lists_as_leaves(structure, convert):
    """A structure in which lists are tensors, as `tf.data` has it; tuples and dicts are structure."""
    if isinstance(structure, dict):
        return type(structure)((key, lists_as_leaves(value, convert)) for key, value in structure.items())
    if isinstance(structure, tuple) and nest.is_nested(structure):
        parts = [lists_as_leaves(value, convert) for value in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return convert(structure) if isinstance(structure, list) else structure


def _leaf(value):
    if isinstance(value, StringTensor) or _holds_strings(value):
        return convert_to_tensor(value)
    return as_array(value)


class Dataset:
    """Elements, one after another: where they come from and what happens to them.

    >>> data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(1000).batch(32).prefetch(tf.data.AUTOTUNE)
    >>> for features, labels in data: ...

    Arrays are read where they are, never copied whole; buffers come out of the process's memory limit. Where every
    element can be found by its number, a shuffle whose buffer holds all of them needs no memory.
    """

    def __init__(self, inner, structure):
        self._inner = inner
        # A structure of any leaves, as many as the engine's data set has components.
        self._structure = structure
        self._epochs = 0

    # Sources

    @staticmethod
    def from_tensor_slices(tensors, name=None):
        """One element for each row of the arrays."""
        tensors = lists_as_leaves(tensors, _leaf)
        leaves = [_leaf(x) for x in nest.flatten(tensors)]
        if not leaves:
            raise ValueError("Invalid `tensors`. `tensors` should not be empty.")
        rows = {len(x) if x.ndim else -1 for x in leaves}
        if -1 in rows:
            raise ValueError("Unbatching a tensor is only supported for rank >= 1")
        if len(rows) > 1:
            raise ValueError(f"Dimensions {sorted(rows)} are not compatible: all arrays must have as many rows")
        return Dataset(_source(leaves), tensors)

    @staticmethod
    def from_tensors(tensors, name=None):
        """One element: the arrays as they are."""
        tensors = lists_as_leaves(tensors, _leaf)
        leaves = [_leaf(x) for x in nest.flatten(tensors)]
        one = [StringTensor(x._array[None]) if isinstance(x, StringTensor) else x[None] for x in leaves]
        return Dataset(_source(one), tensors)

    @staticmethod
    def range(*args, output_type="int64", name=None):
        """Numbers, as Python's `range`."""
        numbers = range(*(int(a) for a in args))
        data = Dataset(engine.Dataset.range(numbers.start, numbers.stop, numbers.step), 0)
        if as_dtype(output_type) == "int64":
            return data
        from plimsoll.math import cast

        return data.map(lambda x: cast(x, output_type))

    @staticmethod
    def from_generator(generator, output_types=None, output_shapes=None, args=None, output_signature=None, name=None):
        """What a Python generator function yields, called anew for every pass."""
        if output_signature is None:
            if output_types is None:
                raise TypeError("from_generator takes output_signature, or output_types")
            types = nest.flatten(output_types)
            shapes = _shapes_like(output_types, output_shapes) if output_shapes is not None else [None] * len(types)
            output_signature = nest.pack_sequence_as(output_types, [TensorSpec(s, t) for s, t in zip(shapes, types)])
        specs = nest.flatten(output_signature)
        given = [convert_to_tensor(a) for a in args or ()]

        def start():
            for value in generator(*(a.numpy() for a in given)):
                value = lists_as_leaves(value, np.asarray)
                leaves = nest.flatten(value) if nest.is_nested(output_signature) else [value]
                if len(leaves) != len(specs):
                    raise TypeError(f"`generator` yielded an element that did not match the expected structure. The expected structure was {output_signature}, but the yielded element was {value!r}.")
                yield for_engine([_fitted(x, spec) for x, spec in zip(leaves, specs)])

        return Dataset(engine.Dataset.from_generator(start, _described(specs)), output_signature)

    @staticmethod
    def zip(*args, datasets=None, name=None):
        """Elements of several data sets side by side, in a structure of your own."""
        structure = datasets if datasets is not None else args[0] if len(args) == 1 else args
        parts = nest.flatten(structure)
        if any(not isinstance(p, Dataset) for p in parts):
            raise TypeError("Invalid input to `zip`: all of it must be `tf.data.Dataset`s")
        inner = engine.Dataset.zip([p._inner for p in parts])
        return Dataset(inner, _nested(structure, parts))

    @staticmethod
    def list_files(file_pattern, shuffle=None, seed=None, name=None):
        """The names of files that match patterns."""
        import glob

        patterns = strings_of(file_pattern).reshape(-1)
        found = sorted(f for pattern in patterns for f in glob.glob(pattern.decode()))
        if not found:
            from plimsoll.errors import InvalidArgumentError

            raise InvalidArgumentError(None, None, f"No files matched pattern: {', '.join(p.decode() for p in patterns)}")
        data = Dataset.from_tensor_slices(found)
        return data if shuffle is False else data.shuffle(len(found), seed)

    @staticmethod
    def random(seed=None, rerandomize_each_iteration=None, name=None):
        """Random numbers without end."""
        first = _seed(seed)

        def numbers():
            draw = np.random.Generator(np.random.Philox(first))
            while True:
                yield draw.integers(0, 2**32)

        return Dataset.from_generator(numbers, output_signature=TensorSpec((), "int64"))

    @staticmethod
    def choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset=True):
        """Elements of the data sets in the order that another says."""

        def chosen():
            running = [iter(d) for d in datasets]
            ended = set()
            for i in choice_dataset:
                i = int(i)
                if i in ended:
                    continue
                try:
                    yield next(running[i])
                except StopIteration:
                    if stop_on_empty_dataset:
                        return
                    ended.add(i)

        return Dataset.from_generator(chosen, output_signature=datasets[0].element_spec)

    @staticmethod
    def sample_from_datasets(datasets, weights=None, seed=None, stop_on_empty_dataset=False, rerandomize_each_iteration=None):
        """Elements of data sets drawn at random."""
        weights = np.full(len(datasets), 1 / len(datasets)) if weights is None else np.asarray(weights, float)
        first = _seed(seed)

        def drawn():
            draw = np.random.Generator(np.random.Philox(first))
            running, left = [iter(d) for d in datasets], np.array(weights)
            while left.sum() > 0:
                i = int(draw.choice(len(datasets), p=left / left.sum()))
                try:
                    yield next(running[i])
                except StopIteration:
                    if stop_on_empty_dataset:
                        return
                    left[i] = 0

        return Dataset.from_generator(drawn, output_signature=datasets[0].element_spec)

    @staticmethod
    def load(path, element_spec=None, compression=None, reader_func=None):
        """A data set that `save` wrote."""
        from plimsoll.data._saved import load

        return load(path)

    # Functions of elements

    def map(self, map_func, num_parallel_calls=None, deterministic=None, synchronous=None, use_unbounded_threadpool=False, name=None):
        """What a function makes of each element.

        A function of tensors alone is traced, planned, and run by the pipeline's threads without the interpreter; one
        that does other things (strings, Python values) is called for every element.
        """
        from plimsoll.data._functions import mapped

        data = mapped(self, map_func)
        if num_parallel_calls is not None:
            inner = data._inner.parallel(int(num_parallel_calls), deterministic is not False)
            data = Dataset(inner, data._structure)
        return data

    def filter(self, predicate, name=None):
        """Only the elements for which a function gives true."""
        from plimsoll.data._functions import filtered

        return filtered(self, predicate)

    def flat_map(self, map_func, name=None):
        """The elements of the data sets that a function makes of the elements."""
        return self.interleave(map_func, 1, 1)

    def interleave(self, map_func, cycle_length=None, block_length=None, num_parallel_calls=None, deterministic=None, name=None):
        """The elements of the data sets that a function makes of the elements, several at a time by turns."""
        from plimsoll.data._functions import interleaved

        cycle = cycle_length if cycle_length not in (None, AUTOTUNE) else num_parallel_calls if (num_parallel_calls or -1) > 0 else 4
        return interleaved(self, map_func, int(cycle), int(block_length or 1), num_parallel_calls is not None)

    def apply(self, transformation_func):
        """What a function makes of the data set."""
        return transformation_func(self)

    def reduce(self, initial_state, reduce_func, name=None):
        """What a function makes of all elements, one after another."""
        now = nest.map_structure(convert_to_tensor, initial_state)
        for value in self:
            made = reduce_func(now, value)
            now = nest.pack_sequence_as(now, [convert_to_tensor(x) for x in nest.flatten(made)])
            engine.flush()
        return now

    def scan(self, initial_state, scan_func, name=None):
        """What a function of a state and each element gives beside the next state."""

        def scanned():
            now = initial_state
            for value in self:
                now, made = scan_func(now, value)
                yield made

        return Dataset.from_generator(scanned, output_signature=_peeked(scanned))

    def take_while(self, predicate, name=None):
        """The elements before the first for which a function gives false."""

        def taken():
            for value in self:
                if not bool(_called(predicate, value)):
                    return
                yield value

        return Dataset.from_generator(taken, output_signature=self.element_spec)

    # Order and number

    def shuffle(self, buffer_size, seed=None, reshuffle_each_iteration=True, name=None):
        """The elements in random order, each drawn from the next `buffer_size`."""
        size = max(self.cardinality_number(), 1) if buffer_size is None else int(buffer_size)
        if size < 1:
            raise ValueError(f"buffer_size must be at least 1, got {size}")
        return self._with(self._inner.shuffle(size, _seed(seed), reshuffle_each_iteration is not False))

    def repeat(self, count=None, name=None):
        """All elements several times, for ever by default."""
        return self._with(self._inner.repeat(None if count is None or int(count) < 0 else int(count)))

    def take(self, count, name=None):
        """The first elements; all of them with -1."""
        return self if int(count) == -1 else self._with(self._inner.take(int(count)))

    def skip(self, count, name=None):
        """Without the first elements; without any with -1."""
        return self._with(self._inner.take(0) if int(count) == -1 else self._inner.skip(int(count)))

    def shard(self, num_shards, index, name=None):
        """Every `num_shards`-th element."""
        return self._with(self._inner.shard(int(num_shards), int(index)))

    def concatenate(self, dataset, name=None):
        """These elements, then another's."""
        return self._with(self._inner.concatenate(dataset._inner))

    def enumerate(self, start=0, name=None):
        """Elements with their numbers."""
        inner = self._inner.enumerate(int(start))
        first = inner.names()[0] == "number"
        if not first:
            return Dataset.zip((Dataset.range(int(start), 2**62), self))
        return Dataset(inner, (0, self._structure))

    def unique(self, name=None):
        """Each element once."""

        def seen_once():
            seen = set()
            for value in self:
                key = value.numpy() if isinstance(value, StringTensor) else value.numpy().tobytes()
                if key not in seen:
                    seen.add(key)
                    yield value

        return Dataset.from_generator(seen_once, output_signature=self.element_spec)

    # Groups

    def batch(self, batch_size, drop_remainder=False, num_parallel_calls=None, deterministic=None, name=None):
        """Several elements as one, along a new first axis."""
        return self._with(self._inner.batch(int(batch_size), bool(drop_remainder)))

    def padded_batch(self, batch_size, padded_shapes=None, padding_values=None, drop_remainder=False, name=None):
        """Several elements of different sizes as one, padded."""
        count = len(self._inner.spec())
        shapes = [None] * count
        if padded_shapes is not None:
            given = _shapes_like(self._structure, padded_shapes)
            shapes = [None if s is None else [None if d in (-1, None) else int(d) for d in s] for s in given]
        values = [None] * count
        if padding_values is not None:
            many = nest.is_nested(padding_values)
            given = nest.flatten(padding_values) if many else [padding_values] * count
            values = [_number(v) for v in given]
        return self._with(self._inner.padded_batch(int(batch_size), shapes, values, bool(drop_remainder)))

    def bucket_by_sequence_length(self, element_length_func, bucket_boundaries, bucket_batch_sizes, padded_shapes=None, padding_values=None, pad_to_bucket_boundary=False, no_padding=False, drop_remainder=False, name=None):
        """Batches of elements of similar length, padded."""
        from plimsoll.data._functions import bucketed

        return bucketed(self, element_length_func, bucket_boundaries, bucket_batch_sizes, drop_remainder)

    def window(self, size, shift=None, stride=1, drop_remainder=False, name=None):
        """Data sets of neighbouring elements."""
        inner = self._inner.window(int(size), int(shift or size), int(stride), bool(drop_remainder))
        return WindowDataset(inner, self._structure)

    def unbatch(self, name=None):
        """The rows of each element."""
        return self._with(self._inner.unbatch())

    def rebatch(self, batch_size, drop_remainder=False, name=None):
        """Batches of another size."""
        return self._with(self._inner.rebatch(int(batch_size), bool(drop_remainder)))

    def ragged_batch(self, batch_size, drop_remainder=False, row_splits_dtype="int64", name=None):
        """Not supported: pad with `padded_batch`."""
        raise NotImplementedError("ragged batches are not supported: pad them with `padded_batch`")

    # Speed

    def prefetch(self, buffer_size, name=None):
        """Elements kept ready ahead of their use, as many as measuring finds useful with AUTOTUNE."""
        size = AUTOTUNE if buffer_size is None else int(buffer_size)
        return self if size == 0 else self._with(self._inner.prefetch(size))

    def cache(self, filename="", name=None):
        """The elements of the first pass kept, in memory or in a file."""
        path = filename if isinstance(filename, str) else strings_of(filename)[()].decode()
        return self._with(self._inner.cache(path or None))

    def with_options(self, options, name=None):
        """Accepted: the engine decides such things by measuring."""
        made = self._with(self._inner)
        made._options = options
        return made

    def options(self):
        """The options that were given."""
        return getattr(self, "_options", None) or Options()

    def ignore_errors(self, log_warning=False, name=None):
        """Without the elements whose data is bad."""
        return self._with(self._inner.ignore_errors())

    def prefetch_to_device(self, device, buffer_size=None):
        """As `prefetch`."""
        return self.prefetch(buffer_size)

    # Looking

    @property
    def element_spec(self):
        """What every element looks like."""
        return nest.pack_sequence_as(self._structure, [_spec_of(c) for c in self._inner.spec()])

    def cardinality(self, name=None):
        """How many elements there are, as a tensor: -1 without end, -2 if only reading tells."""
        return engine.tensor(np.array(self._inner.cardinality(), np.int64))

    def cardinality_number(self):
        """How many elements there are, as a number."""
        return self._inner.cardinality()

    def __len__(self):
        count = self._inner.cardinality()
        if count < 0:
            raise TypeError("The dataset is infinite." if count == INFINITE_CARDINALITY else "The dataset length is unknown.")
        return count

    def __bool__(self):
        return True

    def __iter__(self):
        epoch, self._epochs = self._epochs, self._epochs + 1
        return Iterator(self._inner.iterate(epoch), self._structure, self.element_spec)

    def as_numpy_iterator(self):
        """Elements as arrays."""
        return (nest.map_structure(_numpy, element) for element in self)

    def get_single_element(self, name=None):
        """The only element."""
        found = list(self.take(2))
        if len(found) != 1:
            from plimsoll.errors import InvalidArgumentError

            raise InvalidArgumentError(None, None, "Dataset was empty." if not found else "Dataset had more than one element.")
        return found[0]

    def make_one_shot_iterator(self):
        """An iterator for v1 sessions."""
        from plimsoll.compat.v1.data import make_one_shot_iterator

        return make_one_shot_iterator(self)

    make_initializable_iterator = make_one_shot_iterator

    def save(self, path, compression=None, shard_func=None, checkpoint_args=None):
        """Writes the elements to a folder."""
        from plimsoll.data._saved import save

        save(self, path)

    snapshot = cache

    def group_by_window(self, key_func, reduce_func, window_size=None, window_size_func=None, name=None):
        """Groups of elements with the same key, each made into a data set."""
        from plimsoll.data._functions import grouped

        return grouped(self, key_func, reduce_func, window_size, window_size_func)

    def rejection_resample(self, class_func, target_dist, initial_dist=None, seed=None, name=None):
        """Not supported."""
        raise NotImplementedError("rejection_resample is not supported: use sample_from_datasets")

    def _with(self, inner):
        return Dataset(inner, self._structure)

    def describe(self):
        """The stages, one per line."""
        return self._inner.describe()

    def __repr__(self):
        return f"<Dataset element_spec={self.element_spec}>"


class WindowDataset(Dataset):
    """A data set whose elements are data sets."""

    def __iter__(self):
        for parts in self._inner.iterate(0):
            yield Dataset.from_tensor_slices(nest.pack_sequence_as(self._structure, in_python(parts)))

    def _windows(self):
        """The windows as batches: what most functions of windows make of them."""
        return Dataset(self._inner, self._structure)

    def flat_map(self, map_func, name=None):
        """The elements of the data sets that a function makes of the windows."""

        def elements():
            for window in self:
                yield from map_func(window)

        return Dataset.from_generator(elements, output_signature=_peeked(elements))


class Iterator:
    """The elements of one pass."""

    def __init__(self, inner, structure, spec):
        self._inner, self._structure, self._spec = inner, structure, spec

    element_spec = property(lambda self: self._spec)

    def __iter__(self):
        return self

    def __next__(self):
        return self.packed(next(self._inner))

    def packed(self, parts):
        """An element from the engine's components."""
        return nest.pack_sequence_as(self._structure, in_python(parts))

    def get_next(self, name=None):
        """The next element; `OutOfRangeError` at the end."""
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(None, None, "End of sequence") from None

    def get_next_as_optional(self):
        """The next element, or nothing."""
        from plimsoll.data.experimental import Optional

        try:
            return Optional.from_value(next(self))
        except StopIteration:
            return Optional.empty(self._spec)


class DatasetSpec(TypeSpec):
    """What a data set's elements look like."""

    def __init__(self, element_spec, dataset_shape=()):
        self.element_spec = element_spec


def _numpy(x):
    return x.numpy()


def _number(value):
    if value is None or isinstance(value, (str, bytes, StringTensor)):
        return None
    return float(np.asarray(value))


def _nested(structure, parts):
    found = iter(parts)
    return _replaced(structure, lambda: next(found)._structure)


def _replaced(structure, make):
    """A structure with every leaf replaced by a structure."""
    if not nest.is_nested(structure):
        return make()
    if isinstance(structure, dict):
        made = {key: _replaced(structure[key], make) for key in sorted(structure)}
        return {key: made[key] for key in structure}
    made = [_replaced(child, make) for child in structure]
    return type(structure)(*made) if hasattr(structure, "_fields") else type(structure)(made)


def _shapes_like(structure, shapes):
    """Shapes, which are lists themselves, for the leaves of a structure."""
    if not nest.is_nested(structure):
        return [None if shapes is None else TensorShape(shapes)]
    if isinstance(structure, dict):
        return [s for key in sorted(structure) for s in _shapes_like(structure[key], shapes[key])]
    return [s for child, own in zip(structure, shapes) for s in _shapes_like(child, own)]


def _fitted(value, spec):
    x = convert_to_tensor(value, dtype_hint=spec.dtype)
    if x.dtype != spec.dtype:
        if isinstance(x, StringTensor) or spec.dtype == "string":
            raise TypeError(f"`generator` yielded an element of type {x.dtype.name} where an element of type {spec.dtype.name} was expected.")
        x = engine.cast(x, _WIDER.get(spec.dtype.name, spec.dtype.name))
    if not spec.shape.is_compatible_with(x.shape) and not _unknown(spec.shape):
        raise TypeError(f"`generator` yielded an element of shape {x.shape} where an element of shape {spec.shape} was expected.")
    return x


def _seed(seed):
    if seed is not None:
        return int(seed) & (2**63 - 1)
    from plimsoll import random

    return int(random.next_key().numpy()[1]) ^ (random.get_global_seed() & (2**62 - 1))


def _called(function, value):
    return function(*value) if type(value) is tuple else function(value)


def _peeked(generator):
    """The specs of what a generator yields, read off its first element; sizes are left open."""
    with contextlib.closing(generator()) as running:
        first = next(running, None)
    if first is None:
        raise ValueError("the data set is empty, so what its elements look like cannot be told")
    open_spec = lambda x: TensorSpec([None] * len(x.shape), x.dtype)
    return nest.map_structure(open_spec, nest.map_structure(convert_to_tensor, first))
