"""The memory limit of the process."""

import contextlib
import re

from plimsoll import _engine as engine

_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_now = [None]


def bytes_of(limit):
    """The bytes of a size: a number, or text such as `"512MiB"` or `"2 GB"`."""
    if isinstance(limit, (int, float)):
        return int(limit)
    found = re.fullmatch(r"\s*([\d.]+)\s*([a-zA-Z]*)\s*", limit)
    unit = found and found[2].lower().replace("ib", "")
    if not found or unit not in _UNITS:
        raise ValueError(f"{limit!r} is no size: write for example '512MiB' or '2GB'")
    return int(float(found[1]) * _UNITS[unit])


def set_memory_limit(limit):
    """Keeps the whole process under this much memory: bytes, text such as `"512MiB"`, or None for no limit of its own.

    >>> plimsoll.set_memory_limit("512MiB")
    """
    size = None if limit is None else bytes_of(limit)
    if size is not None and size <= 0:
        raise ValueError(f"a limit of {size} bytes leaves room for nothing")
    engine.set_memory_limit(size)
    _now[0] = size


@contextlib.contextmanager
def memory_limit(limit):
    """A limit for what runs inside.

    >>> with plimsoll.memory_limit("256MiB"):
    ...     model.fit(x, y)
    """
    before = _now[0]
    set_memory_limit(limit)
    try:
        yield
        engine.flush()
    finally:
        set_memory_limit(before)


def memory_info():
    """What the process holds, in bytes: `limit`, `current`, `peak`, and what the engine has of it."""
    return engine.memory_info()
