"""Sums, products, extremes and running sums along axes; the same without what is not a number."""

import builtins
import math as pymath

from keras.src.backend import config
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.backend_utils import canonicalize_axis

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy.types import along
from keras_plimsoll.src.numpy.types import axes_of
from keras_plimsoll.src.numpy.types import is_float
from keras_plimsoll.src.numpy.types import like
from keras_plimsoll.src.numpy.types import part
from keras_plimsoll.src.numpy.types import scalar
from keras_plimsoll.src.numpy.types import sum_type
from keras_plimsoll.src.numpy.types import to_float
from keras_plimsoll.src.numpy.arithmetic import add
from keras_plimsoll.src.numpy.arithmetic import divide
from keras_plimsoll.src.numpy.arithmetic import equal
from keras_plimsoll.src.numpy.arithmetic import isnan
from keras_plimsoll.src.numpy.arithmetic import logical_and
from keras_plimsoll.src.numpy.arithmetic import logical_not
from keras_plimsoll.src.numpy.arithmetic import maximum
from keras_plimsoll.src.numpy.arithmetic import minimum
from keras_plimsoll.src.numpy.arithmetic import multiply
from keras_plimsoll.src.numpy.arithmetic import not_equal
from keras_plimsoll.src.numpy.arithmetic import sqrt
from keras_plimsoll.src.numpy.arithmetic import square
from keras_plimsoll.src.numpy.arithmetic import subtract
from keras_plimsoll.src.numpy.arithmetic import where
from keras_plimsoll.src.numpy.elements import float_info
from keras_plimsoll.src.numpy.elements import signbit
from keras_plimsoll.src.numpy.elements import widened
from keras_plimsoll.src.numpy.shape import broadcast_together
from keras_plimsoll.src.numpy.shape import expand_dims
from keras_plimsoll.src.numpy.shape import ravel
from keras_plimsoll.src.numpy.shape import reshape


def _reduce(kind, x, axis, keepdims):
    axes = axes_of(axis, x.ndim)
    return engine.reduce(kind, x, axes, keepdims) if axes else x


def sum(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    return _reduce("sum", cast(x, sum_type(x.dtype)), axis, keepdims)


def mean(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    if is_float(x):
        # Half precision overflows in a sum long before its mean does.
        return cast(_reduce("mean", widened(x), axis, keepdims), x.dtype)
    return _reduce("mean", cast(x, result_type(x.dtype, "float32")), axis, keepdims)


def prod(x, axis=None, keepdims=False, dtype=None):
    x = convert_to_tensor(x)
    dtype = standardize_dtype(dtype) if dtype is not None else sum_type(result_type(x.dtype))
    return _reduce("prod", cast(x, dtype), axis, keepdims)


def _extreme(kind, x, axis, keepdims, initial):
    x = convert_to_tensor(x)
    if initial is not None:
        initial = convert_to_tensor(initial, x.dtype)
    axes = axes_of(axis, x.ndim)
    if builtins.any(x.shape[a] == 0 for a in axes):
        if initial is None:
            raise ValueError(f"a {kind} over an empty axis needs `initial`; the shape is {x.shape}")
        kept = [1 if i in axes else n for i, n in enumerate(x.shape)] if keepdims else [n for i, n in enumerate(x.shape) if i not in axes]
        return engine.broadcast_to(initial, kept)
    if x.dtype == "bool":
        result = _reduce("any" if kind == "max" else "all", x, axis, keepdims)
    else:
        result = _reduce(kind, x, axis, keepdims)
    if initial is None:
        return result
    return (maximum if kind == "max" else minimum)(result, initial)


def max(x, axis=None, keepdims=False, initial=None):
    return _extreme("max", x, axis, keepdims, initial)


def min(x, axis=None, keepdims=False, initial=None):
    return _extreme("min", x, axis, keepdims, initial)


def amax(x, axis=None, keepdims=False):
    return max(x, axis, keepdims)


def amin(x, axis=None, keepdims=False):
    return min(x, axis, keepdims)


def all(x, axis=None, keepdims=False):
    return _reduce("all", cast(x, "bool"), axis, keepdims)


def any(x, axis=None, keepdims=False):
    return _reduce("any", cast(x, "bool"), axis, keepdims)


def ptp(x, axis=None, keepdims=False):
    return subtract(max(x, axis, keepdims), min(x, axis, keepdims))


def count_nonzero(x, axis=None):
    return sum(cast(not_equal(x, 0), "int32"), axis=axis)


def var(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    work = cast(x, result_type(x.dtype, "float32"))
    center = _reduce("mean", work, axis, True)
    spread = _reduce("mean", square(subtract(work, center)), axis, keepdims)
    return cast(spread, result_type(x.dtype, float))


def std(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    x = x if is_float(x) else cast(x, config.floatx())
    return cast(sqrt(widened(var(widened(x), axis, keepdims))), x.dtype)


def average(x, axis=None, weights=None):
    x = convert_to_tensor(x)
    if weights is None:
        return mean(cast(x, result_type(x.dtype, float)), axis=axis)
    weights = convert_to_tensor(weights)
    dtype = result_type(x.dtype, weights.dtype, float)
    x, weights = cast(x, dtype), cast(weights, dtype)
    if axis is not None and weights.ndim == 1 and x.ndim > 1:
        weights = along(weights, axes_of(axis, x.ndim)[0], x.ndim)
    total = sum(broadcast_together(weights, x)[0], axis=axis)
    return divide(sum(multiply(x, weights), axis=axis), total)


def argmax(x, axis=None, keepdims=False):
    return _arg("argmax", x, axis, keepdims)


def argmin(x, axis=None, keepdims=False):
    return _arg("argmin", x, axis, keepdims)


def _arg(name, x, axis, keepdims):
    x = convert_to_tensor(x)
    if x.dtype == "bool":
        x = cast(x, "uint8")
    if is_float(x) and x.ndim:
        # Zeros in order of their sign.
        x = widened(x)
        x = where(logical_and(equal(x, 0), signbit(x)), like(x, -float_info(x.dtype).tiny), x)
    if x.ndim == 0:
        return engine.full((), 0, "int32")
    if axis is None:
        result = getattr(engine, name)(ravel(x), 0)
        result = reshape(result, [1] * x.ndim) if keepdims else result
    else:
        axis = canonicalize_axis(axis, x.ndim)
        result = getattr(engine, name)(x, axis)
        result = expand_dims(result, axis) if keepdims else result
    return cast(result, "int32")


def cumsum(x, axis=None, dtype=None):
    return _cumulative(engine.cumsum, x, axis, dtype)


def cumprod(x, axis=None, dtype=None):
    return _cumulative(engine.cumprod, x, axis, dtype)


def _cumulative(primitive, x, axis, dtype):
    x = convert_to_tensor(x)
    dtype = result_type(dtype or x.dtype)
    x = cast(x, "int32" if dtype == "bool" else dtype)
    if axis is None:
        x, axis = ravel(x), 0
    return primitive(x, canonicalize_axis(axis, x.ndim), False, False)


def diff(a, n=1, axis=-1):
    a = convert_to_tensor(a)
    axis = canonicalize_axis(axis, a.ndim)
    for _ in range(n):
        size_ = a.shape[axis]
        late, early = part(a, axis, 1, size_), part(a, axis, 0, builtins.max(size_ - 1, 0))
        a = engine.binary("xor", late, early) if a.dtype == "bool" else engine.binary("sub", late, early)
    return a


def trapezoid(y, x=None, dx=1.0, axis=-1):
    y = to_float(y)
    axis = canonicalize_axis(axis, y.ndim)
    n = y.shape[axis]
    if x is None:
        step = convert_to_tensor(dx, y.dtype)
    else:
        x = convert_to_tensor(x, y.dtype)
        step = along(diff(x), axis, y.ndim) if x.ndim == 1 else diff(x, axis=axis)
    middle = multiply(add(part(y, axis, 1, n), part(y, axis, 0, n - 1)), 0.5)
    return sum(multiply(middle, step), axis=axis)


def without_nan(x, value):
    x = convert_to_tensor(x)
    return where(isnan(x), like(x, value), x) if is_float(x) else x


def nansum(x, axis=None, keepdims=False):
    return sum(without_nan(x, 0), axis, keepdims)


def nanprod(x, axis=None, keepdims=False):
    return prod(without_nan(x, 1), axis, keepdims)


def nancumsum(x, axis=None, dtype=None):
    return cumsum(without_nan(x, 0), axis, dtype)


def nancumprod(x, axis=None, dtype=None):
    return cumprod(without_nan(x, 1), axis, dtype)


def nanmax(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    if not is_float(x):
        return max(x, axis, keepdims)
    result = max(without_nan(x, -pymath.inf), axis, keepdims)
    return where(all(isnan(x), axis, keepdims), like(result, pymath.nan), result)


def nanmin(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    if not is_float(x):
        return min(x, axis, keepdims)
    result = min(without_nan(x, pymath.inf), axis, keepdims)
    return where(all(isnan(x), axis, keepdims), like(result, pymath.nan), result)


def _nan_count(x, axis, keepdims, dtype):
    return sum(cast(logical_not(isnan(x)), dtype), axis, keepdims)


def nanmean(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    dtype = result_type(x.dtype, float)
    work = widened(cast(x, dtype))
    total = sum(without_nan(work, 0), axis, keepdims)
    return cast(divide(total, _nan_count(work, axis, keepdims, work.dtype)), dtype)


def nanvar(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    work = cast(x, result_type(x.dtype, "float32"))
    center = nanmean(work, axis, True)
    return cast(nanmean(square(subtract(work, center)), axis, keepdims), result_type(x.dtype, float))


def nanstd(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    return cast(sqrt(nanvar(cast(x, result_type(x.dtype, "float32")), axis, keepdims)), result_type(x.dtype, float))


def _nan_arg(function, x, axis, keepdims, instead):
    x = convert_to_tensor(x)
    if not is_float(x):
        return function(x, axis, keepdims)
    return where(all(isnan(x), axis, keepdims), scalar(-1, "int32"), function(without_nan(x, instead), axis, keepdims))


def nanargmax(x, axis=None, keepdims=False):
    return _nan_arg(argmax, x, axis, keepdims, -pymath.inf)


def nanargmin(x, axis=None, keepdims=False):
    return _nan_arg(argmin, x, axis, keepdims, pymath.inf)
