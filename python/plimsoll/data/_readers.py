"""Readers of files: records, lines, and records of a fixed length."""

import os

import numpy as np

from plimsoll import _engine as engine
from plimsoll._core import StringTensor
from plimsoll._core import strings_of
from plimsoll._types import TensorSpec
from plimsoll.data._dataset import Dataset
from plimsoll.errors import NotFoundError


def paths_of(filenames):
    """Names of files from a string, a list, a tensor or a data set of them."""
    if isinstance(filenames, Dataset):
        filenames = [name.numpy() for name in filenames]
    if isinstance(filenames, os.PathLike):
        filenames = os.fspath(filenames)
    if isinstance(filenames, (list, tuple)):
        filenames = [os.fspath(f) if isinstance(f, os.PathLike) else f for f in filenames]
    paths = [p.decode() for p in strings_of(filenames).reshape(-1)]
    for path in paths:
        if not os.path.exists(path):
            raise NotFoundError(None, None, f"{path}; No such file or directory")
    return paths


def TFRecordDataset(filenames, compression_type=None, buffer_size=None, num_parallel_reads=None, name=None):
    """The records of TFRecord files, as strings."""
    return Dataset(engine.Dataset.from_tfrecords(paths_of(filenames), compression_type), 0)


def TextLineDataset(filenames, compression_type=None, buffer_size=None, num_parallel_reads=None, name=None):
    """The lines of text files, without their ends."""
    return Dataset(engine.Dataset.from_lines(paths_of(filenames), compression_type), 0)


def FixedLengthRecordDataset(filenames, record_bytes, header_bytes=None, footer_bytes=None, buffer_size=None, compression_type=None, num_parallel_reads=None, name=None):
    """Pieces of files of equal length, as strings."""
    paths, length = paths_of(filenames), int(record_bytes)

    def pieces():
        for path in paths:
            end = os.path.getsize(path) - int(footer_bytes or 0)
            with open(path, "rb") as file:
                file.seek(int(header_bytes or 0))
                while file.tell() + length <= end:
                    yield StringTensor(np.array(file.read(length), object))

    return Dataset.from_generator(pieces, output_signature=TensorSpec((), "string"))
