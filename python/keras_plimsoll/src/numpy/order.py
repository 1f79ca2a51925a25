"""Order: sorted, counted, quantiles."""

import builtins
import math as pymath

import numpy as np
from keras.src.backend import config
from keras.src.backend.common.backend_utils import canonicalize_axis

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import record
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import on_host
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy.types import axes_of
from keras_plimsoll.src.numpy.types import is_float
from keras_plimsoll.src.numpy.types import like
from keras_plimsoll.src.numpy.types import promoted
from keras_plimsoll.src.numpy.types import scalar
from keras_plimsoll.src.numpy.types import to_float
from keras_plimsoll.src.numpy.arithmetic import add
from keras_plimsoll.src.numpy.arithmetic import divide
from keras_plimsoll.src.numpy.arithmetic import equal
from keras_plimsoll.src.numpy.arithmetic import greater_equal
from keras_plimsoll.src.numpy.arithmetic import isnan
from keras_plimsoll.src.numpy.arithmetic import less
from keras_plimsoll.src.numpy.arithmetic import less_equal
from keras_plimsoll.src.numpy.arithmetic import logical_and
from keras_plimsoll.src.numpy.arithmetic import logical_not
from keras_plimsoll.src.numpy.arithmetic import maximum
from keras_plimsoll.src.numpy.arithmetic import multiply
from keras_plimsoll.src.numpy.arithmetic import subtract
from keras_plimsoll.src.numpy.arithmetic import where
from keras_plimsoll.src.numpy.elements import clip
from keras_plimsoll.src.numpy.shape import expand_dims
from keras_plimsoll.src.numpy.shape import moveaxis
from keras_plimsoll.src.numpy.shape import ravel
from keras_plimsoll.src.numpy.shape import reshape
from keras_plimsoll.src.numpy.shape import transpose
from keras_plimsoll.src.numpy.reduce import any
from keras_plimsoll.src.numpy.reduce import max
from keras_plimsoll.src.numpy.reduce import min
from keras_plimsoll.src.numpy.reduce import sum
from keras_plimsoll.src.numpy.reduce import without_nan
from keras_plimsoll.src.numpy.make import linspace


def sort(x, axis=-1):
    x = convert_to_tensor(x)
    if x.dtype == "bool":
        return cast(sort(cast(x, "uint8"), axis), "bool")
    if axis is None:
        x, axis = ravel(x), 0
    return engine.sort(x, canonicalize_axis(axis, x.ndim), False)[0]


def argsort(x, axis=-1):
    x = convert_to_tensor(x)
    if x.ndim == 0:
        return engine.full((), 0, "int32")
    x = cast(x, "uint8") if x.dtype == "bool" else x
    if axis is None:
        x, axis = ravel(x), 0
    return cast(engine.sort(x, canonicalize_axis(axis, x.ndim), False)[1], "int32")


def argpartition(x, kth, axis=-1):
    """A whole sort: its order satisfies every partition."""
    return argsort(x, axis)


def quantile(x, q, axis=None, method="linear", keepdims=False):
    x = convert_to_tensor(x)
    dtype = config.floatx() if x.dtype == "int64" else result_type(x.dtype, float)
    x = cast(x, dtype)
    q = convert_to_tensor(q, dtype)
    return _quantile(x, q, axis, method, keepdims, None)


def _quantile(x, q, axis, method, keepdims, counts):
    """`counts(flattened)`: the number of entries that count along the last axis, when not all do (they sort first)."""
    axes = axes_of(axis, x.ndim)
    kept = [i for i in range(x.ndim) if i not in axes]
    flat = reshape(transpose(x, kept + axes), [x.shape[i] for i in kept] + [pymath.prod(x.shape[i] for i in axes)])
    size_ = flat.shape[-1]
    ordered = engine.sort(flat, flat.ndim - 1, False)[0] if counts is None else counts[0](flat)
    work = "float64" if x.dtype == "float64" else "float32"
    last = scalar(size_ - 1, work) if counts is None else cast(counts[1](flat), work)
    points = reshape(cast(q, work), (-1, *[1] * (flat.ndim - 1)))
    # Where nothing counts there is no last one: the first entry is as good as any, it is NaN.
    places = multiply(points, maximum(last, scalar(0, work)))
    low, high = engine.unary("floor", places), engine.unary("ceil", places)
    if counts is None and not any_nan_possible(x):
        spoiled = None
    else:
        spoiled = any(isnan(flat), axis=-1) if counts is None else None

    def pick(place):
        index = cast(place, "int32")
        index = engine.broadcast_to(index, (index.shape[0], *flat.shape[:-1]))
        index = moveaxis(index, 0, -1)
        return moveaxis(cast(engine.take_along(ordered, index, ordered.ndim - 1), work), -1, 0)

    if method == "lower":
        values = pick(low)
    elif method == "higher":
        values = pick(high)
    elif method == "nearest":
        values = pick(engine.unary("round", places))
    elif method == "midpoint":
        values = multiply(add(pick(low), pick(high)), 0.5)
    elif method == "linear":
        share = subtract(places, low)
        a, b = pick(low), pick(high)
        # Infinities have no difference.
        values = where(equal(a, b), a, add(a, multiply(subtract(b, a), share)))
    else:
        raise ValueError(f"unknown method of interpolation: {method}")
    if spoiled is not None:
        values = where(spoiled, like(values, pymath.nan), values)
    if counts is not None:
        values = where(less(last, 0), like(values, pymath.nan), values)
    if keepdims:
        values = reshape(values, [values.shape[0]] + [1 if i in axes else n for i, n in enumerate(x.shape)])
    values = reshape(values, (*q.shape, *values.shape[1:]))
    return cast(values, x.dtype)


def any_nan_possible(x):
    return is_float(x)


def percentile(x, q, axis=None, method="linear", keepdims=False):
    x = to_float(convert_to_tensor(x))
    q = convert_to_tensor(q)
    return quantile(x, divide(cast(q, "float32" if x.dtype != "float64" else x.dtype), 100.0), axis, method, keepdims)


def median(x, axis=None, keepdims=False):
    return quantile(x, 0.5, axis, "linear", keepdims)


_nan_last = (
    lambda flat: engine.sort(without_nan(flat, pymath.inf), flat.ndim - 1, False)[0],
    lambda flat: subtract(sum(cast(logical_not(isnan(flat)), "int32"), axis=-1), 1),
)


def nanquantile(x, q, axis=None, method="linear", keepdims=False):
    x = convert_to_tensor(x)
    if not is_float(x):
        return quantile(x, q, axis, method, keepdims)
    return _quantile(x, convert_to_tensor(q, x.dtype), axis, method, keepdims, _nan_last)


def nanpercentile(x, q, axis=None, method="linear", keepdims=False):
    q = convert_to_tensor(q)
    return nanquantile(x, divide(cast(q, "float32"), 100.0), axis, method, keepdims)


def nanmedian(x, axis=None, keepdims=False):
    return nanquantile(x, 0.5, axis, "linear", keepdims)


def searchsorted(sorted_sequence, values, side="left"):
    sequence, values = promoted(convert_to_tensor(sorted_sequence), convert_to_tensor(values))
    if sequence.ndim != 1:
        raise ValueError(
            "`searchsorted` only supports 1-D sorted sequences. You can use `keras.ops.vectorized_map` "
            f"to extend it to N-D sequences. Received: sorted_sequence.shape={sequence.shape}"
        )
    sequence = reshape(sequence, [1] * values.ndim + [-1])
    before = (less if side == "left" else less_equal)(sequence, expand_dims(values, -1))
    return sum(cast(before, "int32"), axis=-1)


def digitize(x, bins):
    return searchsorted(bins, x, side="right")


def bincount(x, weights=None, minlength=0, sparse=False):
    if sparse:
        raise ValueError("Unsupported value `sparse=True` with plimsoll backend")
    if weights is None:
        x = cast(x, "int32")
        dtype, weights = "int32", engine.full(x.shape, 1, "int32")
    else:
        x, weights = convert_to_tensor(x), convert_to_tensor(weights)
        dtype = result_type(x.dtype, weights.dtype)
        x = cast(x, "int32")
    if record.is_symbolic(x):
        depth = int(minlength)
        if not depth and not record.in_shape_inference():
            raise ValueError("in a traced function `bincount` needs `minlength`, the number of bins")
        depth = builtins.max(depth, 1)
    else:
        seen = x.numpy()
        depth = builtins.max(int(seen.max()) + 1 if seen.size else 0, int(minlength))
    hits = engine.one_hot(x, depth, dtype if "float" in dtype else "int32")
    total = multiply(hits, expand_dims(cast(weights, hits.dtype), -1))
    return cast(sum(total, axis=-2), dtype)


def histogram(x, bins=10, range=None):
    x = convert_to_tensor(x)
    if not isinstance(bins, int):
        raise ValueError(f"Argument `bins` should be an integer. Received: bins={bins}")
    low, high = range if range else (min(x), max(x))
    dtype = result_type(x.dtype, float)
    x = cast(ravel(x), dtype)
    low, high = convert_to_tensor(low, dtype), convert_to_tensor(high, dtype)
    same = equal(low, high)
    low, high = where(same, subtract(low, 0.5), low), where(same, add(high, 0.5), high)
    edges = linspace(low, high, bins + 1, dtype=dtype)
    inside = logical_and(greater_equal(x, low), less_equal(x, high))
    place = clip(subtract(searchsorted(edges, x, side="right"), 1), 0, bins - 1)
    hits = where(inside, place, like(place, bins))
    return sum(engine.one_hot(hits, bins + 1, "int32"), axis=0)[:bins], edges


def unique(
    x,
    sorted=True,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=None,
    size=None,
    fill_value=None,
):
    x = convert_to_tensor(x)
    dim = 0 if axis is None else canonicalize_axis(axis, x.ndim)

    def on_values(values):
        found = np.unique(
            values, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
        )
        values, index, inverse, counts = found
        if size is not None:
            values = _fit(values, dim, size, 0 if fill_value is None else fill_value)
            index, counts = _fit(index, 0, size, 1), _fit(counts, 0, size, 0)
        return values, index, inverse, counts

    count = size if size is not None else None
    outputs = None
    if count is not None:
        lead = (count,) if axis is None else tuple(count if i == dim else n for i, n in enumerate(x.shape))
        inverse_shape = x.shape if axis is None else (x.shape[dim],)
        outputs = [(lead, x.dtype), ((count,), "int32"), (inverse_shape, "int32"), ((count,), "int32")]
    values, index, inverse, counts = on_host(on_values, [x], outputs)
    chosen = [values]
    chosen += [cast(index, "int32")] if return_index else []
    chosen += [cast(inverse, "int32")] if return_inverse else []
    chosen += [cast(counts, "int32")] if return_counts else []
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def _fit(values, axis, size, fill):
    """`values` cut or filled up to `size` along an axis."""
    have = values.shape[axis]
    if have >= size:
        return np.take(values, np.arange(size), axis=axis)
    widths = [(0, 0)] * values.ndim
    widths[axis] = (0, size - have)
    return np.pad(values, widths, constant_values=fill)


def isin(x1, x2, assume_unique=False, invert=False):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    found = any(equal(expand_dims(a, -1), reshape(b, [1] * a.ndim + [-1])), axis=-1)
    return logical_not(found) if invert else found


def nonzero(x):
    x = convert_to_tensor(x)
    found = on_host(lambda v: tuple(np.nonzero(v)), [x], None)
    return tuple(cast(f, "int32") for f in found)
