"""`tf.compat`: v1 sessions in two forms, and names of v2."""

import sys

from plimsoll.compat import v1 as v1


def as_bytes(bytes_or_text, encoding="utf-8"):
    """Text as bytes."""
    return bytes_or_text.encode(encoding) if isinstance(bytes_or_text, str) else bytes(bytes_or_text)


def as_text(bytes_or_text, encoding="utf-8"):
    """Bytes as text."""
    return bytes_or_text if isinstance(bytes_or_text, str) else bytes(bytes_or_text).decode(encoding)


as_str = as_text


def __getattr__(name):
    if name == "v2":
        return sys.modules["plimsoll"]
    raise AttributeError(name)
