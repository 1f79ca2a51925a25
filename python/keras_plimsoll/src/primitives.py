"""The engine's primitives, for every type that Keras asks them for.

Some kernels exist for single and double precision only. Here narrower floats are carried out in single precision, integers in
double precision, which holds them up to 2**53. Everything else is the engine's own.
"""

from plimsoll import _engine

_NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_EXACT = ("float32", "float64")


def __getattr__(name):
    return getattr(_engine, name)


def _work_type(dtype):
    if dtype in _EXACT:
        return dtype
    return "float32" if dtype in _NARROW else "float64"


def _cast(x, dtype):
    return x if x.dtype == dtype else _engine.cast(x, dtype)


def _computed(primitive):
    """A function of one tensor whose result has the tensor's type."""

    def function(x, *args):
        return _cast(primitive(_cast(x, _work_type(x.dtype)), *args), x.dtype)

    return function


softmax = _computed(_engine.softmax)
log_softmax = _computed(_engine.log_softmax)
cumsum = _computed(_engine.cumsum)
cumprod = _computed(_engine.cumprod)


def _ordered(dtype):
    """The type to compare in."""
    if dtype in _NARROW:
        return "float32"
    return dtype if dtype in ("float32", "float64", "int32", "int64") else ("int64" if dtype == "uint32" else "int32")


def argmax(x, axis):
    return _engine.argmax(_cast(x, _ordered(x.dtype)), axis)


def argmin(x, axis):
    return _engine.argmin(_cast(x, _ordered(x.dtype)), axis)


def sort(x, axis, descending):
    values, indices = _engine.sort(_cast(x, _ordered(x.dtype)), axis, descending)
    return _cast(values, x.dtype), indices


def top_k(x, k):
    values, indices = _engine.top_k(_cast(x, _ordered(x.dtype)), k)
    return _cast(values, x.dtype), indices


def scatter_add(indices, updates, axis, size):
    work = _work_type(updates.dtype)
    return _cast(_engine.scatter_add(indices, _cast(updates, work), axis, size), updates.dtype)


def sparse_cross_entropy(logits, labels):
    work = _work_type(logits.dtype)
    return _cast(_engine.sparse_cross_entropy(_cast(logits, work), labels), logits.dtype)


def attention(query, key, value, scale, causal, mask):
    """`mask`: None, or added to the scores; it is fixed, no gradient flows to it."""
    dtype = query.dtype
    query, key, value = (_cast(x, _work_type(dtype)) for x in (query, key, value))
    return _cast(_engine.attention(query, key, value, scale=scale, causal=causal, mask=mask), dtype)
