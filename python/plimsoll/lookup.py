"""`tf.lookup`: tables from keys to values, on the host."""

import numpy as np

from plimsoll._core import StringTensor
from plimsoll._core import convert_to_tensor
from plimsoll._types import as_dtype


class KeyValueTensorInitializer:
    """Keys and values."""

    def __init__(self, keys, values, key_dtype=None, value_dtype=None, name=None):
        self.keys, self.values = convert_to_tensor(keys, key_dtype), convert_to_tensor(values, value_dtype)


class TextFileIndex:
    """What a column of a file is."""

    WHOLE_LINE, LINE_NUMBER = -2, -1


class TextFileInitializer:
    """Keys and values from the lines of a file."""

    def __init__(self, filename, key_dtype, key_index, value_dtype, value_index, vocab_size=None, delimiter="\t", name=None):
        with open(filename, encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file][:vocab_size]
        pick = lambda i, line, index: line if index == -2 else i if index == -1 else line.split(delimiter)[index]
        column = lambda index, dtype: [as_dtype(dtype).as_numpy_dtype(v) if as_dtype(dtype) != "string" else v for v in (pick(i, line, index) for i, line in enumerate(lines))]
        self.keys = convert_to_tensor(column(key_index, key_dtype), key_dtype)
        self.values = convert_to_tensor(column(value_index, value_dtype), value_dtype)


class StaticHashTable:
    """A table that does not change."""

    def __init__(self, initializer, default_value, name=None, experimental_is_anonymous=False):
        self._table = dict(zip(_plain(initializer.keys), _plain(initializer.values)))
        self.key_dtype, self.value_dtype = initializer.keys.dtype, initializer.values.dtype
        self._default = _plain(convert_to_tensor(default_value, dtype_hint=self.value_dtype))[0]

    def lookup(self, keys, name=None):
        """The value of each key."""
        keys = convert_to_tensor(keys, dtype_hint=self.key_dtype)
        found = [self._table.get(key, self._default) for key in _plain(keys)]
        return _shaped(found, keys.shape, self.value_dtype)

    __getitem__ = lookup

    def size(self, name=None):
        """How many keys there are."""
        return convert_to_tensor(np.int64(len(self._table)))


class StaticVocabularyTable(StaticHashTable):
    """A table in which unknown keys have numbers behind the known ones."""

    def __init__(self, initializer, num_oov_buckets, lookup_key_dtype=None, name=None):
        super().__init__(initializer, -1)
        self._buckets = int(num_oov_buckets)

    def lookup(self, keys, name=None):
        """The number of each key."""
        from plimsoll.strings import _hash

        keys = convert_to_tensor(keys, dtype_hint=self.key_dtype)
        other = lambda key: len(self._table) + _hash(key if isinstance(key, bytes) else str(key).encode()) % self._buckets
        return _shaped([self._table.get(key, None) if key in self._table else other(key) for key in _plain(keys)], keys.shape, self.value_dtype)


def _plain(x):
    return list(x._array.reshape(-1)) if isinstance(x, StringTensor) else np.asarray(x.numpy()).reshape(-1).tolist()


def _shaped(values, shape, dtype):
    if dtype == "string":
        array = np.empty(len(values), object)
        array[:] = values
        return StringTensor(array.reshape(tuple(shape)))
    return convert_to_tensor(np.array(values, dtype.as_numpy_dtype).reshape(tuple(shape)))
