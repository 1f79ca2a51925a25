"""`tf.io`: files, examples, and images in files."""

import base64
import os
import shutil
import zlib

import numpy as np

from plimsoll import _engine as engine
from plimsoll._core import StringTensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import strings_of
from plimsoll._types import as_dtype
from plimsoll.errors import InvalidArgumentError
from plimsoll.errors import NotFoundError
from plimsoll.train import Example
from plimsoll.train import SequenceExample


class FixedLenFeature:
    """A feature with always as many values."""

    def __init__(self, shape, dtype, default_value=None):
        self.shape, self.dtype, self.default_value = [int(d) for d in shape], as_dtype(dtype), default_value


class VarLenFeature:
    """A feature with any number of values."""

    def __init__(self, dtype):
        self.dtype = as_dtype(dtype)


class RaggedFeature(VarLenFeature):
    """A feature with any number of values."""

    def __init__(self, dtype, value_key=None, partitions=(), row_splits_dtype="int32", validate=False):
        super().__init__(dtype)


class FixedLenSequenceFeature(VarLenFeature):
    """A feature with any number of rows of one shape."""

    def __init__(self, shape, dtype, allow_missing=False, default_value=None):
        super().__init__(dtype)
        self.shape = [int(d) for d in shape]


def parse_single_example(serialized, features, example_names=None, name=None):
    """The features of one serialized `tf.train.Example`, as a dict of tensors.

    Features with any number of values come as dense vectors.
    """
    record = strings_of(serialized)
    if record.ndim:
        raise ValueError("Input serialized must be a scalar")
    found = Example.FromString(record[()]).features.feature
    return {key: _feature(found.get(key), key, feature) for key, feature in features.items()}


def _feature(found, key, wanted):
    values = [] if found is None else found.values()
    if isinstance(wanted, FixedLenFeature):
        count = int(np.prod(wanted.shape))
        if not values and wanted.default_value is not None:
            default = wanted.default_value
            values = [default] * count if not isinstance(default, (list, tuple, np.ndarray)) else list(default)
        if len(values) != count:
            raise InvalidArgumentError(None, None, f"Key: {key}.  Can't parse serialized Example: {len(values)} values where {count} are wanted")
        return _tensor(values, wanted.dtype, wanted.shape)
    return _tensor(values, wanted.dtype, [-1, *getattr(wanted, "shape", [])] if values else [0, *getattr(wanted, "shape", [])])


def _tensor(values, dtype, shape):
    if dtype == "string":
        return StringTensor(strings_of(values).reshape(shape))
    return engine.tensor(np.array(values, dtype.as_numpy_dtype).reshape(shape), dtype.name)


def parse_example(serialized, features, example_names=None, name=None):
    """The features of several examples, one row each; values that differ in number are padded with 0 or empty strings."""
    records = strings_of(serialized)
    if not records.ndim:
        return parse_single_example(serialized, features)
    rows = [parse_single_example(record, features) for record in records]
    return {key: _rows([row[key] for row in rows]) for key in features}


def _rows(parts):
    arrays = [np.asarray(p._array if isinstance(p, StringTensor) else p.numpy()) for p in parts]
    longest = max((a.shape[0] for a in arrays if a.ndim), default=0)
    if arrays and arrays[0].ndim:
        empty = b"" if arrays[0].dtype == object else 0
        arrays = [np.concatenate([a, np.full((longest - len(a), *a.shape[1:]), empty, a.dtype)]) for a in arrays]
    stacked = np.stack(arrays)
    return StringTensor(stacked) if stacked.dtype == object else convert_to_tensor(stacked)


def parse_single_sequence_example(serialized, context_features=None, sequence_features=None, example_name=None, name=None):
    """The features of a `tf.train.SequenceExample`: those of the whole, and those of its steps."""
    record = SequenceExample.FromString(strings_of(serialized)[()])
    context = {k: _feature(record.context.feature.get(k), k, f) for k, f in (context_features or {}).items()}
    steps = {}
    for key, wanted in (sequence_features or {}).items():
        found = record.feature_lists.feature_list.get(key)
        values = [v for step in (found.feature if found else []) for v in step.values()]
        steps[key] = _tensor(values, wanted.dtype, [-1, *getattr(wanted, "shape", [])] if values else [0])
    return context, steps


def serialize_tensor(tensor, name=None):
    """A tensor as a string, read by `parse_tensor`."""
    from plimsoll.train import serialized_tensor

    return StringTensor(strings_of(serialized_tensor(convert_to_tensor(tensor))))


def parse_tensor(serialized, out_type, name=None):
    """A tensor from a string that `serialize_tensor` made."""
    from plimsoll.train import parsed_tensor

    x = parsed_tensor(strings_of(serialized)[()])
    if x.dtype != as_dtype(out_type):
        raise InvalidArgumentError(None, None, f"Type mismatch between parsed tensor ({x.dtype.name}) and dtype ({as_dtype(out_type).name})")
    return x


class TFRecordOptions:
    """How a TFRecord file is compressed."""

    def __init__(self, compression_type=None, **kwargs):
        self.compression_type = compression_type


class TFRecordWriter:
    """Writes records to a file.

    >>> with tf.io.TFRecordWriter("train.tfrecord") as writer:
    ...     writer.write(example.SerializeToString())
    """

    def __init__(self, path, options=None):
        kind = options.compression_type if isinstance(options, TFRecordOptions) else options
        self._writer = engine.TFRecordWriter(os.fspath(path), kind)

    def write(self, record):
        """Appends a record."""
        self._writer.write(record)

    def flush(self):
        """Records are complete when the file is closed."""

    def close(self):
        """Finishes the file."""
        self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _path(path):
    return os.fspath(path) if isinstance(path, os.PathLike) else strings_of(path)[()].decode()


def read_file(filename, name=None):
    """The bytes of a file."""
    try:
        with open(_path(filename), "rb") as file:
            return StringTensor(strings_of(file.read()))
    except FileNotFoundError:
        raise NotFoundError(None, None, f"{_path(filename)}; No such file or directory") from None


def write_file(filename, contents, name=None):
    """Writes bytes to a file."""
    os.makedirs(os.path.dirname(_path(filename)) or ".", exist_ok=True)
    with open(_path(filename), "wb") as file:
        file.write(strings_of(contents)[()])


def matching_files(pattern, name=None):
    """The names of files that match a pattern."""
    import glob

    return StringTensor(strings_of(sorted(f for p in strings_of(pattern).reshape(-1) for f in glob.glob(p.decode()))))


def decode_raw(input_bytes, out_type, little_endian=True, fixed_length=None, name=None):
    """Bytes as numbers."""
    array = strings_of(input_bytes)
    kind = np.dtype(as_dtype(out_type).as_numpy_dtype).newbyteorder("<" if little_endian else ">")
    rows = [np.frombuffer(s, kind).astype(kind.newbyteorder("=")) for s in array.reshape(-1)]
    return convert_to_tensor(rows[0] if not array.ndim else np.stack(rows).reshape(*array.shape, -1))


def decode_csv(records, record_defaults, field_delim=",", use_quote_delim=True, na_value="", select_cols=None, name=None):
    """The fields of lines, a tensor for each."""
    import csv

    lines = strings_of(records)
    rows = [next(csv.reader([line.decode()], delimiter=field_delim)) for line in lines.reshape(-1)]
    places = range(len(record_defaults)) if select_cols is None else select_cols
    out = []
    for i, default in zip(places, record_defaults):
        plain = default if not isinstance(default, (list, tuple)) else (default[0] if default else "")
        first = convert_to_tensor(plain) if not hasattr(plain, "is_floating") else None
        dtype = as_dtype(plain) if first is None else first.dtype
        values = [row[i] if row[i] != na_value else (None if first is None else first.numpy()) for row in rows]
        if dtype == "string":
            x = strings_of([b"" if v is None else v for v in values])
            out.append(StringTensor(x.reshape(lines.shape)))
        else:
            out.append(engine.tensor(np.array(values, dtype.as_numpy_dtype).reshape(lines.shape), dtype.name))
    return out


def decode_json_example(json_examples, name=None):
    """Not supported."""
    raise NotImplementedError("decode_json_example is not supported")


def encode_base64(input, pad=False, name=None):
    """Bytes in the letters that are safe in addresses."""
    f = lambda s: base64.urlsafe_b64encode(s) if pad else base64.urlsafe_b64encode(s).rstrip(b"=")
    return _each(f, input)


def decode_base64(input, name=None):
    """The bytes that `encode_base64` was given."""
    return _each(lambda s: base64.urlsafe_b64decode(s + b"=" * (-len(s) % 4)), input)


def decode_compressed(bytes, compression_type="", name=None):
    """Bytes that were compressed."""
    return _each((lambda s: zlib.decompress(s, 47)) if compression_type else (lambda s: s), bytes)


def _each(function, strings):
    array = strings_of(strings)
    out = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        out[place] = function(array[place])
    return StringTensor(out)


def _image(name):
    def decode(contents, channels=0, *args, **kwargs):
        from plimsoll import image

        return getattr(image, name)(contents, channels, *args, **kwargs)

    decode.__name__, decode.__doc__ = name, "An image from the bytes of a file."
    return decode


decode_image, decode_jpeg, decode_png = _image("decode_image"), _image("decode_jpeg"), _image("decode_png")


def encode_png(image, compression=-1, name=None):
    """The bytes of a PNG file."""
    from plimsoll.image import encode_png

    return encode_png(image, compression)



class gfile:
    """`tf.io.gfile`: files of this machine."""

    GFile = staticmethod(open)
    exists = staticmethod(os.path.exists)
    isdir = staticmethod(os.path.isdir)
    listdir = staticmethod(os.listdir)
    mkdir = staticmethod(os.mkdir)
    remove = staticmethod(os.remove)
    rmtree = staticmethod(shutil.rmtree)
    walk = staticmethod(os.walk)
    join = staticmethod(os.path.join)

    @staticmethod
    def makedirs(path):
        """Makes folders."""
        os.makedirs(path, exist_ok=True)

    @staticmethod
    def glob(pattern):
        """The names of files that match patterns."""
        import glob

        patterns = [pattern] if isinstance(pattern, (str, bytes)) else pattern
        return [f for p in patterns for f in sorted(glob.glob(p))]

    @staticmethod
    def copy(src, dst, overwrite=False):
        """Copies a file."""
        if os.path.exists(dst) and not overwrite:
            from plimsoll.errors import AlreadyExistsError

            raise AlreadyExistsError(None, None, "file already exists")
        shutil.copyfile(src, dst)

    @staticmethod
    def rename(src, dst, overwrite=False):
        """Renames a file."""
        os.replace(src, dst)
