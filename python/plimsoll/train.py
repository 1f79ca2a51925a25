"""`tf.train`: the messages of TFRecord files, checkpoints of variables, and small helpers.

Messages are written and read by hand: a handful of fields, without a library for all of protobuf.
"""

import json
import os
import struct

import numpy as np

from plimsoll import _engine as engine
from plimsoll._core import StringTensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import strings_of
from plimsoll._types import as_dtype


def _varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _block(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _fields(data):
    """The fields of a message: number and value."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(data, at)
        elif kind == 2:
            size, at = _read_varint(data, at)
            if at + size > len(data):
                raise ValueError("the message ends inside a field")
            value, at = data[at : at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"a message has no fields of kind {kind}")
        yield tag >> 3, value


def _read_varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the message ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


class _Message:
    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    @classmethod
    def FromString(cls, data):
        """The message that bytes are."""
        made = cls()
        made.ParseFromString(data)
        return made


class _List(_Message):
    def __init__(self, value=()):
        self.value = [self._plain(v) for v in value]

    _plain = staticmethod(lambda v: v)


class BytesList(_List):
    """Strings."""

    _plain = staticmethod(lambda v: v.encode() if isinstance(v, str) else bytes(v))

    def SerializeToString(self):
        """The message as bytes."""
        return b"".join(_block(1, v) for v in self.value)

    def ParseFromString(self, data):
        """Reads the message."""
        self.value = [bytes(v) for n, v in _fields(data) if n == 1]


class FloatList(_List):
    """Floats."""

    _plain = float

    def SerializeToString(self):
        """The message as bytes."""
        return _block(1, struct.pack(f"<{len(self.value)}f", *self.value)) if self.value else b""

    def ParseFromString(self, data):
        """Reads the message."""
        parts = [v for n, v in _fields(data) if n == 1]
        self.value = np.frombuffer(b"".join(parts), "<f4").tolist()


class Int64List(_List):
    """Integers."""

    _plain = int

    def SerializeToString(self):
        """The message as bytes."""
        return _block(1, b"".join(map(_varint, self.value))) if self.value else b""

    def ParseFromString(self, data):
        """Reads the message."""
        self.value = []
        for n, v in _fields(data):
            if n != 1:
                continue
            if isinstance(v, int):
                self.value.append(v)
                continue
            at = 0
            while at < len(v):
                number, at = _read_varint(v, at)
                self.value.append(number)
        self.value = [v - (1 << 64) if v >= 1 << 63 else v for v in self.value]


class Feature(_Message):
    """One of the three lists."""

    _KINDS = (("bytes_list", BytesList), ("float_list", FloatList), ("int64_list", Int64List))

    def __init__(self, bytes_list=None, float_list=None, int64_list=None):
        self.bytes_list, self.float_list, self.int64_list = bytes_list, float_list, int64_list
        self._fill()

    def _fill(self):
        self._kind = next((name for name, _ in self._KINDS if getattr(self, name) is not None), None)
        for name, kind in self._KINDS:
            if getattr(self, name) is None:
                setattr(self, name, kind())

    def WhichOneof(self, name="kind"):
        """Which list it is."""
        return self._kind or next((n for n, _ in self._KINDS if getattr(self, n).value), None)

    def values(self):
        """What is in the list."""
        kind = self.WhichOneof()
        return [] if kind is None else getattr(self, kind).value

    def SerializeToString(self):
        """The message as bytes."""
        kind = self.WhichOneof()
        for i, (name, _) in enumerate(self._KINDS, 1):
            if name == kind:
                return _block(i, getattr(self, name).SerializeToString())
        return b""

    def ParseFromString(self, data):
        """Reads the message."""
        self.bytes_list = self.float_list = self.int64_list = None
        for n, v in _fields(data):
            if 1 <= n <= 3:
                name, kind = self._KINDS[n - 1]
                setattr(self, name, kind.FromString(v))
        self._fill()


class _Map(_Message):
    """Messages by name."""

    _of = Feature

    def _entries(self, table):
        entry = lambda key, value: _block(1, key.encode()) + _block(2, value.SerializeToString())
        return b"".join(_block(1, entry(key, table[key])) for key in sorted(table))

    def _table(self, data):
        found = {}
        for n, entry in _fields(data):
            if n == 1:
                parts = dict(_fields(entry))
                found[bytes(parts.get(1, b"")).decode()] = self._of.FromString(parts.get(2, b""))
        return found


class Features(_Map):
    """Features by name."""

    def __init__(self, feature=None):
        self.feature = dict(feature or {})

    def SerializeToString(self):
        """The message as bytes."""
        return self._entries(self.feature)

    def ParseFromString(self, data):
        """Reads the message."""
        self.feature = self._table(data)


class FeatureList(_Message):
    """Features of steps."""

    def __init__(self, feature=()):
        self.feature = list(feature)

    def SerializeToString(self):
        """The message as bytes."""
        return b"".join(_block(1, f.SerializeToString()) for f in self.feature)

    def ParseFromString(self, data):
        """Reads the message."""
        self.feature = [Feature.FromString(v) for n, v in _fields(data) if n == 1]


class FeatureLists(_Map):
    """Features of steps by name."""

    _of = FeatureList

    def __init__(self, feature_list=None):
        self.feature_list = dict(feature_list or {})

    def SerializeToString(self):
        """The message as bytes."""
        return self._entries(self.feature_list)

    def ParseFromString(self, data):
        """Reads the message."""
        self.feature_list = self._table(data)


class Example(_Message):
    """Features by name: what TFRecord files usually hold.

    >>> tf.train.Example(features=tf.train.Features(feature={
    ...     "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))})).SerializeToString()
    """

    def __init__(self, features=None):
        self.features = features or Features()

    def SerializeToString(self):
        """The message as bytes."""
        return _block(1, self.features.SerializeToString())

    def ParseFromString(self, data):
        """Reads the message."""
        parts = [v for n, v in _fields(data) if n == 1]
        self.features = Features.FromString(b"".join(parts))


class SequenceExample(_Message):
    """Features of a whole and of its steps."""

    def __init__(self, context=None, feature_lists=None):
        self.context, self.feature_lists = context or Features(), feature_lists or FeatureLists()

    def SerializeToString(self):
        """The message as bytes."""
        return _block(1, self.context.SerializeToString()) + _block(2, self.feature_lists.SerializeToString())

    def ParseFromString(self, data):
        """Reads the message."""
        parts = dict(_fields(data))
        self.context = Features.FromString(parts.get(1, b""))
        self.feature_lists = FeatureLists.FromString(parts.get(2, b""))


# TensorProto: the numbers of types, and what holds a tensor's bytes.
_TYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "string": 7, "int64": 9, "bool": 10, "bfloat16": 14, "float16": 19}


def serialized_tensor(x):
    """A tensor as a TensorProto."""
    sizes = b"".join(_block(2, _varint(1 << 3) + _varint(d)) for d in x.shape)
    head = _varint(1 << 3) + _varint(_TYPES[x.dtype.name]) + _block(2, sizes)
    if isinstance(x, StringTensor):
        return head + b"".join(_block(8, s) for s in x._array.reshape(-1))
    return head + _block(4, np.ascontiguousarray(x.numpy()).tobytes())


def parsed_tensor(data):
    """The tensor that a TensorProto is."""
    dtype, sizes, content, strings = None, [], b"", []
    for n, v in _fields(data):
        if n == 1:
            dtype = next((name for name, number in _TYPES.items() if number == v), None)
        elif n == 2:
            sizes = [dict(_fields(size)).get(1, 0) for number, size in _fields(v) if number == 2]
        elif n == 4:
            content = v
        elif n == 8:
            strings.append(bytes(v))
    if dtype is None:
        raise ValueError("the bytes are no tensor of a known type")
    if dtype == "string":
        return StringTensor(strings_of(strings).reshape(sizes))
    return convert_to_tensor(np.frombuffer(content, as_dtype(dtype).as_numpy_dtype).reshape(sizes))


class Checkpoint:
    """Variables of objects, written to and read from a file.

    The file is a `.npz` archive with a name for each variable: the attribute path that leads to it.
    """

    def __init__(self, root=None, **kwargs):
        self._objects = {**({"root": root} if root is not None else {}), **kwargs}
        for name, value in kwargs.items():
            setattr(self, name, value)
        self.save_counter = 0

    def _variables(self):
        found = {}
        for name, value in sorted(self._objects.items()):
            for i, v in enumerate(_variables_of(value)):
                found[f"{name}/{i}"] = v
        return found

    def write(self, file_prefix, options=None):
        """Writes to files that begin so."""
        path = os.fspath(file_prefix)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        arrays = {name: np.asarray(v.numpy()) for name, v in self._variables().items()}
        with open(f"{path}.npz.tmp", "wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.npz.tmp", f"{path}.npz")
        return path

    def save(self, file_prefix, options=None):
        """As `write`, with a number behind the name."""
        self.save_counter += 1
        path = self.write(f"{os.fspath(file_prefix)}-{self.save_counter}")
        _remember(path)
        return path

    def read(self, save_path, options=None):
        """Reads what `write` wrote."""
        with np.load(f"{os.fspath(save_path)}.npz") as arrays:
            wanted = self._variables()
            missing = sorted(set(wanted) - set(arrays.files))
            for name, v in wanted.items():
                if name in arrays.files:
                    v.assign(arrays[name])
        return _Status(missing)

    def restore(self, save_path, options=None):
        """As `read`; nothing happens when the path is None."""
        return _Status([]) if save_path is None else self.read(save_path)


def _variables_of(value):
    if isinstance(value, engine.Variable) or isinstance(getattr(value, "_value", None), engine.Variable):
        return [value]
    if isinstance(value, (list, tuple)):
        return [v for item in value for v in _variables_of(item)]
    found = getattr(value, "variables", None)
    return list(found() if callable(found) else found or [])


class _Status:
    """What became of a restore."""

    def __init__(self, missing):
        self._missing = missing

    def assert_consumed(self):
        """Raises unless every variable was in the file."""
        if self._missing:
            raise AssertionError(f"not in the checkpoint: {', '.join(self._missing)}")
        return self

    assert_existing_objects_matched = assert_consumed

    def expect_partial(self):
        """Nothing is wrong with missing ones."""
        return self


def _remember(path):
    folder = os.path.dirname(path) or "."
    with open(os.path.join(folder, "checkpoint.json"), "w") as file:
        json.dump({"latest": os.path.basename(path)}, file)


def latest_checkpoint(checkpoint_dir, latest_filename=None):
    """The newest checkpoint of a folder, None if there is none."""
    try:
        with open(os.path.join(checkpoint_dir, "checkpoint.json")) as file:
            return os.path.join(checkpoint_dir, json.load(file)["latest"])
    except FileNotFoundError:
        return None


class CheckpointManager:
    """Keeps the newest checkpoints of a folder."""

    def __init__(self, checkpoint, directory, max_to_keep, checkpoint_name="ckpt", **kwargs):
        self.checkpoint, self.directory, self._keep, self._name = checkpoint, os.fspath(directory), max_to_keep, checkpoint_name
        self._held = []
        latest = latest_checkpoint(self.directory)
        if latest is not None:
            self._held.append(latest)
            checkpoint.save_counter = int(latest.rpartition("-")[2])

    latest_checkpoint = property(lambda self: self._held[-1] if self._held else None)
    checkpoints = property(lambda self: list(self._held))

    def save(self, checkpoint_number=None, **kwargs):
        """Writes a checkpoint and removes the oldest."""
        if checkpoint_number is not None:
            self.checkpoint.save_counter = int(checkpoint_number) - 1
        self._held.append(self.checkpoint.save(os.path.join(self.directory, self._name)))
        while self._keep and len(self._held) > self._keep:
            os.remove(f"{self._held.pop(0)}.npz")
        return self._held[-1]

    def restore_or_initialize(self):
        """Restores the newest checkpoint if there is one."""
        if self.latest_checkpoint:
            self.checkpoint.restore(self.latest_checkpoint)
        return self.latest_checkpoint


class Coordinator:
    """Accepted: there are no threads to coordinate."""

    def should_stop(self):
        """Never."""
        return False
