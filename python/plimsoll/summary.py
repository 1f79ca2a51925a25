"""`tf.summary`: scalars, text, images and histograms in files that TensorBoard reads."""

import contextlib
import os
import socket
import struct
import time

import numpy as np

from plimsoll._core import convert_to_tensor
from plimsoll.train import _block
from plimsoll.train import _varint

_state = {"writer": None, "step": None, "condition": True}


def _crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _crc_table()


def _crc(data):
    """The checksum of TFRecord files."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 255] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _double(number, value):
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number, value):
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _integer(number, value):
    return _varint(number << 3) + _varint(int(value))


class SummaryWriter:
    """Writes events to one file."""

    def __init__(self, logdir, filename_suffix=""):
        os.makedirs(logdir, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time() * 1e6)}.{socket.gethostname()}.{os.getpid()}{filename_suffix or ''}"
        self._file = open(os.path.join(logdir, name), "ab")
        self._event(_block(3, b"brain.Event:2"))

    def _event(self, content, step=0):
        self._record(_double(1, time.time()) + _integer(2, step) + content)

    def _record(self, data):
        length = struct.pack("<Q", len(data))
        self._file.write(length + struct.pack("<I", _crc(length)) + data + struct.pack("<I", _crc(data)))

    def _value(self, tag, content, step, plugin, note=b""):
        metadata = _block(9, _block(1, _block(1, plugin) + (_block(2, note) if note else b"")))
        self._event(_block(5, _block(1, _block(1, tag.encode()) + metadata + content)), step)

    @contextlib.contextmanager
    def as_default(self, step=None):
        """What is written inside goes here."""
        before = dict(_state)
        _state["writer"] = self
        if step is not None:
            _state["step"] = step
        try:
            yield self
        finally:
            _state.update(before)

    def set_as_default(self, step=None):
        """What is written from now on goes here."""
        _state["writer"] = self
        if step is not None:
            _state["step"] = step

    def flush(self):
        """Everything is in the file."""
        self._file.flush()

    def close(self):
        """No more is written."""
        self._file.close()

    init = flush


def create_file_writer(logdir, max_queue=None, flush_millis=None, filename_suffix=None, name=None):
    """A writer of events to a folder."""
    return SummaryWriter(os.fspath(logdir), filename_suffix)


def create_noop_writer():
    """A writer of nothing."""

    class Nothing:
        def _value(self, *_):
            pass

        def __getattr__(self, name):
            return lambda *args, **kwargs: contextlib.nullcontext(self)

    return Nothing()


def _write(tag, content, step, plugin, note=b""):
    """Writes what `content()` makes, if anybody wants it."""
    writer = _state["writer"]
    if not should_record_summaries():
        return False
    step = _state["step"] if step is None else step
    if step is None:
        raise ValueError("No step set. Please specify one either through the `step` argument or through tf.summary.experimental.set_step()")
    writer._value(tag, content(), int(step), plugin, note)
    return True


def scalar(name, data, step=None, description=None):
    """Writes a number."""
    return _write(name, lambda: _float(2, float(np.asarray(convert_to_tensor(data).numpy()))), step, b"scalars")


def text(name, data, step=None, description=None):
    """Writes text."""
    return _write(name, lambda: _tensor(convert_to_tensor(data)), step, b"text")


def write(tag, tensor, step=None, metadata=None, name=None):
    """Writes a tensor. Metadata is a message as TensorBoard has it, or nothing."""
    plugin = getattr(metadata, "plugin_data", None)
    kind, note = (plugin.plugin_name.encode(), plugin.content) if plugin is not None else (b"", b"")
    return _write(tag, lambda: _tensor(convert_to_tensor(tensor)), step, kind, note)


def _tensor(x):
    from plimsoll.train import serialized_tensor

    return _block(8, serialized_tensor(x))


def histogram(name, data, step=None, buckets=30, description=None):
    """Writes how values are distributed."""

    def table():
        values = np.asarray(convert_to_tensor(data).numpy()).reshape(-1).astype(np.float64)
        counts, edges = np.histogram(values, buckets) if values.size else (np.zeros(buckets), np.zeros(buckets + 1))
        return _tensor(convert_to_tensor(np.stack([edges[:-1], edges[1:], counts], 1)))

    return _write(name, table, step, b"histograms")


def image(name, data, step=None, max_outputs=3, description=None):
    """Writes images [count, height, width, channels]."""
    from plimsoll._core import StringTensor
    from plimsoll._core import strings_of
    from plimsoll.image import encode_png

    def files():
        images = np.asarray(convert_to_tensor(data).numpy())
        if images.dtype != np.uint8:
            images = (np.clip(images, 0, 1) * 255.999).astype(np.uint8)
        sizes = [str(images.shape[2]).encode(), str(images.shape[1]).encode()]
        return _tensor(StringTensor(strings_of(sizes + [encode_png(one).numpy() for one in images[:max_outputs]])))

    return _write(name, files, step, b"images")


def flush(writer=None, name=None):
    """Everything is in the file."""
    (writer or _state["writer"]).flush()


def should_record_summaries():
    """Whether there is a writer, and what it is given is to be written."""
    condition = _state["condition"]
    return _state["writer"] is not None and bool(condition() if callable(condition) else condition)


@contextlib.contextmanager
def record_if(condition):
    """Writes only if the condition is true; a function is asked each time."""
    before = _state["condition"]
    _state["condition"] = condition
    try:
        yield
    finally:
        _state["condition"] = before


def trace_on(graph=True, profiler=False, profiler_outdir=None):
    """Accepted: plans are shown by `plimsoll.plan` and the report."""


def trace_export(name, step=None, profiler_outdir=None):
    """Accepted."""


def trace_off():
    """Accepted."""


class experimental:
    """The step that writers use by default."""

    @staticmethod
    def set_step(step):
        """Sets it."""
        _state["step"] = step

    @staticmethod
    def get_step():
        """Gets it."""
        return _state["step"]
