"""Data sets in folders: a TFRecord file of examples and what their features look like."""

import json
import os

import numpy as np

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._core import convert_to_tensor
from plimsoll._core import StringTensor
from plimsoll._types import as_dtype
from plimsoll.data._dataset import Dataset

_DATA, _SPEC = "elements.tfrecord", "spec.json"


def save(data, path):
    """Writes the elements to a folder."""
    os.makedirs(path, exist_ok=True)
    form = nest.map_structure(lambda spec: spec.dtype.name, data.element_spec)
    writer = engine.TFRecordWriter(os.path.join(path, _DATA), None)
    for element in data:
        writer.write(_packed(nest.flatten(element)))
    writer.close()
    with open(os.path.join(path, _SPEC), "w") as file:
        json.dump(_to_json(form), file)


def _packed(values):
    """The sizes and bytes of every component, each behind its length."""
    out = []
    for value in values:
        array = value._array if isinstance(value, StringTensor) else np.asarray(value.numpy())
        parts = list(array.reshape(-1)) if isinstance(value, StringTensor) else [np.ascontiguousarray(array).tobytes()]
        head = np.array([array.ndim, *array.shape, len(parts), *map(len, parts)], "<i8")
        out += [np.array([len(head)], "<i8").tobytes(), head.tobytes(), *parts]
    return b"".join(out)


def _unpacked(record, names):
    at, values = 0, []
    for name in names:
        count = int(np.frombuffer(record, "<i8", 1, at)[0])
        head = np.frombuffer(record, "<i8", count, at + 8).tolist()
        at += 8 + 8 * count
        sizes, lengths = head[1 : 1 + head[0]], head[2 + head[0] :]
        parts = []
        for length in lengths:
            parts.append(record[at : at + length])
            at += length
        if name == "string":
            array = np.empty(len(parts), object)
            array[:] = parts
            values.append(StringTensor(array.reshape(sizes)))
        else:
            array = np.frombuffer(parts[0], as_dtype(name).as_numpy_dtype).reshape(sizes)
            values.append(convert_to_tensor(array))
    return values


def load(path):
    """A data set that `save` wrote."""
    with open(os.path.join(path, _SPEC)) as file:
        form = _from_json(json.load(file))
    names = nest.flatten(form)
    records = Dataset(engine.Dataset.from_tfrecords([os.path.join(path, _DATA)], None), 0)
    return records.map(lambda record: nest.pack_sequence_as(form, _unpacked(record.numpy(), names)))


def _to_json(form):
    if isinstance(form, dict):
        return {"dict": {key: _to_json(value) for key, value in form.items()}}
    if isinstance(form, (tuple, list)):
        return {type(form).__name__ if type(form) in (tuple, list) else "tuple": [_to_json(value) for value in form]}
    return form


def _from_json(form):
    if isinstance(form, str):
        return form
    if "dict" in form:
        return {key: _from_json(value) for key, value in form["dict"].items()}
    kind = "tuple" if "tuple" in form else "list"
    return (tuple if kind == "tuple" else list)(_from_json(value) for value in form[kind])
