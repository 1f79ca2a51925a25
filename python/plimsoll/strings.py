"""`tf.strings`: what input pipelines do with text, on the host."""

import re

import numpy as np

from plimsoll import _engine as engine
from plimsoll._core import StringTensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import strings_of
from plimsoll._types import as_dtype
from plimsoll.errors import InvalidArgumentError


def _each(function, strings, dtype=None):
    array = strings_of(strings)
    out = np.empty(array.shape, object if dtype is None else dtype)
    for place in np.ndindex(array.shape):
        out[place] = function(array[place])
    return StringTensor(out) if dtype is None else engine.tensor(out)


def lower(input, encoding="", name=None):
    """Small letters."""
    return _each((lambda s: s.decode().lower().encode()) if encoding else bytes.lower, input)


def upper(input, encoding="", name=None):
    """Capital letters."""
    return _each((lambda s: s.decode().upper().encode()) if encoding else bytes.upper, input)


def strip(input, name=None):
    """Without white space at the ends."""
    return _each(bytes.strip, input)


def length(input, unit="BYTE", name=None):
    """How long each string is."""
    return _each((lambda s: len(s.decode())) if unit == "UTF8_CHAR" else len, input, np.int32)


def substr(input, pos, len, unit="BYTE", name=None):
    """Parts of strings."""
    first, count = int(pos), int(len)
    cut = lambda s: s[first : first + count] if first >= 0 else s[first:][:count]
    if unit == "UTF8_CHAR":
        return _each(lambda s: cut(s.decode()).encode(), input)
    return _each(cut, input)


def _pattern(pattern):
    text = pattern if isinstance(pattern, (str, bytes)) else strings_of(pattern)[()]
    return re.compile(text.encode() if isinstance(text, str) else text)


def regex_replace(input, pattern, rewrite, replace_global=True, name=None):
    """Matches of a pattern replaced; `\\1` stands for its first group."""
    found = _pattern(pattern)
    new = strings_of(rewrite)[()]
    return _each(lambda s: found.sub(new, s, count=0 if replace_global else 1), input)


def regex_full_match(input, pattern, name=None):
    """Whether each string is a match as a whole."""
    found = _pattern(pattern)
    return _each(lambda s: found.fullmatch(s) is not None, input, bool)


def join(inputs, separator="", name=None):
    """Strings one behind the other, element by element."""
    arrays = [strings_of(x) for x in inputs]
    between = strings_of(separator)[()]
    sizes = np.broadcast_shapes(*(a.shape for a in arrays))
    arrays = [np.broadcast_to(a, sizes) for a in arrays]
    out = np.empty(sizes, object)
    for place in np.ndindex(sizes):
        out[place] = between.join(a[place] for a in arrays)
    return StringTensor(out)


def reduce_join(inputs, axis=None, keepdims=False, separator="", name=None):
    """Strings one behind the other along an axis, or all."""
    array, between = strings_of(inputs), strings_of(separator)[()]
    if axis is None:
        joined = strings_of(between.join(array.reshape(-1)))
        return StringTensor(joined.reshape([1] * array.ndim) if keepdims else joined)
    moved = np.moveaxis(array, axis, -1)
    out = np.empty(moved.shape[:-1], object)
    for place in np.ndindex(out.shape):
        out[place] = between.join(moved[place])
    return StringTensor(np.expand_dims(out, axis) if keepdims else out)


def split(input, sep=None, maxsplit=-1, name=None):
    """The words of a string; of several strings, a list of tensors (there are no ragged tensors here)."""
    array = strings_of(input)
    by = None if sep is None or sep == "" else strings_of(sep)[()]
    if not array.ndim:
        return StringTensor(strings_of(array[()].split(by, maxsplit)).reshape(-1))
    return [StringTensor(strings_of(s.split(by, maxsplit)).reshape(-1)) for s in array.reshape(-1)]


def bytes_split(input, name=None):
    """The bytes of a string."""
    text = strings_of(input)[()]
    return StringTensor(strings_of([text[i : i + 1] for i in range(len(text))]).reshape(-1))


def unicode_split(input, input_encoding, errors="replace", replacement_char=65533, name=None):
    """The letters of a string."""
    text = strings_of(input)[()].decode(input_encoding.replace("-", ""), errors)
    return StringTensor(strings_of(list(text)).reshape(-1))


def unicode_decode(input, input_encoding, errors="replace", replacement_char=65533, replace_control_characters=False, name=None):
    """The numbers of a string's letters."""
    text = strings_of(input)[()].decode(input_encoding.replace("-", ""), errors)
    return engine.tensor(np.array([ord(c) for c in text], np.int32))


def unicode_encode(input, output_encoding, errors="replace", replacement_char=65533, name=None):
    """A string of letters' numbers."""
    return StringTensor(strings_of("".join(map(chr, convert_to_tensor(input).numpy())).encode(output_encoding.replace("-", ""))))


def to_number(input, out_type="float32", name=None):
    """The numbers that strings say."""
    dtype = as_dtype(out_type)

    def parse(s):
        try:
            return int(s) if dtype.is_integer else float(s)
        except ValueError:
            raise InvalidArgumentError(None, None, f"StringToNumberOp could not correctly convert string: {s.decode(errors='replace')}") from None

    return _each(parse, input, dtype.as_numpy_dtype)


def as_string(input, precision=-1, scientific=False, shortest=False, width=-1, fill="", name=None):
    """Numbers as text."""
    x = convert_to_tensor(input)
    if isinstance(x, StringTensor):
        return x
    array = np.asarray(x.numpy())

    def text(v):
        if array.dtype.kind == "b":
            return b"true" if v else b"false"
        if array.dtype.kind in "iu":
            return str(v).encode()
        if scientific or shortest:
            return (f"{v:.{precision}e}" if precision >= 0 else f"{v:e}").encode()
        return f"{v:.{precision if precision >= 0 else 6}f}".encode()

    out = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        out[place] = text(array[place])
    return StringTensor(out)


def format(template, inputs, placeholder="{}", summarize=3, name=None):
    """Text with values in it."""
    inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    for value in inputs:
        shown = value.numpy() if hasattr(value, "numpy") else value
        template = template.replace(placeholder, shown.decode() if isinstance(shown, bytes) else str(shown), 1)
    return StringTensor(strings_of(template))


def _hash(text):
    """FarmHash is what TensorFlow uses; this is FNV-1a, so buckets differ from TensorFlow's."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def to_hash_bucket_fast(input, num_buckets, name=None):
    """A number below `num_buckets` for each string, not the one that TensorFlow gives."""
    return _each(lambda s: _hash(s) % int(num_buckets), input, np.int64)


to_hash_bucket = to_hash_bucket_fast


def ngrams(data, ngram_width, separator=" ", pad_values=None, padding_width=None, preserve_short_sequences=False, name=None):
    """Neighbouring strings joined."""
    words = list(strings_of(data).reshape(-1))
    widths = [ngram_width] if isinstance(ngram_width, int) else list(ngram_width)
    between = separator.encode()
    return StringTensor(strings_of([between.join(words[i : i + w]) for w in widths for i in range(len(words) - w + 1)]).reshape(-1))
