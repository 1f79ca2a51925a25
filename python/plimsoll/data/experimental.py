"""`tf.data.experimental`: older names of what is ordinary now, and readers of CSV files."""

import csv as _csv

from plimsoll import _engine as engine
from plimsoll._types import TensorSpec
from plimsoll._types import as_dtype
from plimsoll.data._dataset import AUTOTUNE as AUTOTUNE
from plimsoll.data._dataset import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from plimsoll.data._dataset import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from plimsoll.data._dataset import Dataset
from plimsoll.data._readers import paths_of


def cardinality(dataset):
    """How many elements there are."""
    return dataset.cardinality()


def assert_cardinality(expected_cardinality):
    """Says how many elements there are."""
    return lambda dataset: dataset.take(int(expected_cardinality)) if int(expected_cardinality) >= 0 else dataset


def ignore_errors(log_warning=False):
    """Leaves out elements whose data is bad."""
    return lambda dataset: dataset.ignore_errors()


def dense_to_ragged_batch(batch_size, drop_remainder=False, row_splits_dtype="int64"):
    """Not supported."""
    raise NotImplementedError("ragged batches are not supported: pad them with `padded_batch`")


def choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset=False):
    """Elements of the data sets in the order that another says."""
    return Dataset.choose_from_datasets(datasets, choice_dataset, stop_on_empty_dataset)


def sample_from_datasets(datasets, weights=None, seed=None, stop_on_empty_dataset=False):
    """Elements of data sets drawn at random."""
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)


def prefetch_to_device(device, buffer_size=None):
    """Keeps elements ready."""
    return lambda dataset: dataset.prefetch(buffer_size)


def shuffle_and_repeat(buffer_size, count=None, seed=None):
    """Shuffles and repeats."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


def save(dataset, path, compression=None, shard_func=None):
    """Writes the elements to a folder."""
    dataset.save(path)


def load(path, element_spec=None, compression=None, reader_func=None):
    """A data set that `save` wrote."""
    return Dataset.load(path)


def CsvDataset(filenames, record_defaults, compression_type=None, buffer_size=None, header=False, field_delim=",", use_quote_delim=True, na_value="", select_cols=None, exclude_cols=None):
    """The columns of CSV files as tuples; defaults say the types, and stand for what is missing."""
    paths = paths_of(filenames)
    names = _header(paths[0], field_delim, header)
    places = list(select_cols) if select_cols is not None else list(range(len(names)))
    if exclude_cols is not None:
        places = [i for i in range(len(names)) if i not in set(exclude_cols)]
    columns = [(names[i], *_default(default)) for i, default in zip(places, record_defaults)]
    inner = engine.Dataset.from_csv(paths, columns, field_delim, header, compression_type)
    return Dataset(inner, tuple(range(len(columns))))


def _header(path, delimiter, header):
    with open(path, newline="") as file:
        first = next(_csv.reader(file, delimiter=delimiter), [])
    return first if header else [str(i) for i in range(len(first))]


def _default(default):
    """Type and stand-in of a column."""
    if isinstance(default, (list, tuple)):
        default = default[0] if default else ""
    if isinstance(default, (str, bytes)) and not hasattr(default, "is_floating"):
        return "string", default.decode() if isinstance(default, bytes) else default
    if hasattr(default, "numpy"):
        return default.dtype.name, str(default.numpy())
    if isinstance(default, float):
        return "float32", repr(default)
    if isinstance(default, int):
        return "int32", str(default)
    return as_dtype(default).name, None


def make_csv_dataset(file_pattern, batch_size, column_names=None, column_defaults=None, label_name=None, select_columns=None, field_delim=",", use_quote_delim=True, na_value="", header=True, num_epochs=None, shuffle=True, shuffle_buffer_size=10000, shuffle_seed=None, prefetch_buffer_size=None, num_parallel_reads=None, sloppy=False, num_rows_for_inference=100, compression_type=None, ignore_errors=False, encoding="utf-8"):
    """Batches of CSV columns as dicts, the label apart."""
    import glob

    paths = sorted(glob.glob(file_pattern)) if isinstance(file_pattern, str) else paths_of(file_pattern)
    names = list(column_names or _header(paths[0], field_delim, header))
    wanted = list(select_columns or names)
    kinds = [_default(d) for d in column_defaults] if column_defaults is not None else _inferred(paths[0], field_delim, header, names, wanted)
    columns = [(name, kind, "" if missing is None and kind == "string" else missing) for name, (kind, missing) in zip(wanted, kinds)]
    data = Dataset(engine.Dataset.from_csv(paths, columns, field_delim, header, compression_type), tuple(wanted))
    if shuffle:
        data = data.shuffle(shuffle_buffer_size, shuffle_seed)
    if ignore_errors:
        data = data.ignore_errors()
    data = data.repeat(num_epochs).batch(batch_size, drop_remainder=num_epochs is None)
    # Components stay in the file's order; a dict is visited in the order of its keys.
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    features = lambda *values: {wanted[i]: values[i] for i in order if wanted[i] != label_name}
    if label_name is None:
        return data.map(lambda *values: features(*values))
    label = wanted.index(label_name)
    return data.map(lambda *values: (features(*values), values[label])).prefetch(prefetch_buffer_size)


def _inferred(path, delimiter, header, names, wanted):
    """The narrowest type that the first rows of each column have."""
    rows = []
    with open(path, newline="") as file:
        reader = _csv.reader(file, delimiter=delimiter)
        if header:
            next(reader, None)
        for row, _ in zip(reader, range(100)):
            rows.append(row)
    kinds = []
    for name in wanted:
        values = [row[names.index(name)] for row in rows if names.index(name) < len(row)]
        kinds.append(next(kind for kind in (("int32", "0"), ("float32", "0.0"), ("string", "")) if all(_is(v, kind[0]) for v in values)))
    return kinds


def _is(text, kind):
    if kind == "string" or text == "":
        return True
    try:
        return -(2**31) <= int(text) < 2**31 if kind == "int32" else float(text) is not None
    except ValueError:
        return False


class Optional:
    """A value that may not be there."""

    def __init__(self, value, there):
        self._value, self._there = value, there

    @staticmethod
    def from_value(value):
        """One that is."""
        return Optional(value, True)

    @staticmethod
    def empty(element_spec):
        """One that is not."""
        return Optional(element_spec, False)

    def has_value(self, name=None):
        """Whether it is there."""
        return engine.tensor(self._there, "bool")

    def get_value(self, name=None):
        """The value."""
        if not self._there:
            raise ValueError("there is no value")
        return self._value


class TFRecordWriter:
    """Writes a data set of strings to a TFRecord file."""

    def __init__(self, filename, compression_type=None):
        self._writer = engine.TFRecordWriter(filename, compression_type)

    def write(self, dataset):
        """Writes all elements."""
        for record in dataset:
            self._writer.write(record.numpy())
        self._writer.close()


class AutoShardPolicy:
    """Accepted: there is one worker."""

    OFF, AUTO, FILE, DATA, HINT = -1, 0, 1, 2, 3


class OptimizationOptions:
    """Accepted: the engine decides such things itself."""


def get_structure(dataset_or_iterator):
    """What elements look like."""
    return dataset_or_iterator.element_spec


def spec_of(shape, dtype):
    """A spec."""
    return TensorSpec(shape, dtype)
