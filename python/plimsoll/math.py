"""`tf.math`: functions of elements, comparisons, reductions and running sums."""

import numpy as np

from plimsoll import _engine as engine
from plimsoll import _special
from plimsoll._core import StringTensor
from plimsoll._core import Tensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll._core import pair
from plimsoll._core import raw_dtype
from plimsoll._core import static_shape
from plimsoll._core import strings_of
from plimsoll._types import as_dtype
from plimsoll.errors import InvalidArgumentError


def _unary(name, function, doc, floats_only=False):
    def apply(x, name=None):
        x = convert_to_tensor(x)
        if floats_only and "float" not in raw_dtype(x):
            raise InvalidArgumentError(None, None, f"{apply.__name__} takes floating-point numbers, got {raw_dtype(x)}")
        return engine.unary(function, x)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = doc
    return op(apply)


def _binary(name, function, doc):
    def apply(x, y, name=None):
        a, b = pair(x, y, apply.__name__)
        return engine.binary(function, a, b)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = doc
    return op(apply)


exp = _unary("exp", "exp", "e to the power of x.", True)
expm1 = _unary("expm1", "expm1", "e to the power of x, minus 1, exact near 0.", True)
log = _unary("log", "log", "The natural logarithm.", True)
log1p = _unary("log1p", "log1p", "The natural logarithm of 1 + x, exact near 0.", True)
sqrt = _unary("sqrt", "sqrt", "The square root.", True)
rsqrt = _unary("rsqrt", "rsqrt", "1 over the square root.", True)
sin = _unary("sin", "sin", "The sine.", True)
cos = _unary("cos", "cos", "The cosine.", True)
tan = _unary("tan", "tan", "The tangent.", True)
asin = _unary("asin", "asin", "The inverse of the sine.", True)
acos = _unary("acos", "acos", "The inverse of the cosine.", True)
atan = _unary("atan", "atan", "The inverse of the tangent.", True)
sinh = _unary("sinh", "sinh", "The hyperbolic sine.", True)
cosh = _unary("cosh", "cosh", "The hyperbolic cosine.", True)
tanh = _unary("tanh", "tanh", "The hyperbolic tangent.", True)
asinh = _unary("asinh", "asinh", "The inverse of the hyperbolic sine.", True)
acosh = _unary("acosh", "acosh", "The inverse of the hyperbolic cosine.", True)
atanh = _unary("atanh", "atanh", "The inverse of the hyperbolic tangent.", True)
sigmoid = _unary("sigmoid", "sigmoid", "1 / (1 + exp(-x)).", True)
softplus = _unary("softplus", "softplus", "log(1 + exp(x)).", True)
erf = _unary("erf", "erf", "The error function.", True)
negative = _unary("negative", "neg", "-x.")
square = _unary("square", "square", "x times x.")
sign = _unary("sign", "sign", "-1, 0 or 1.")
logical_not = _unary("logical_not", "logical_not", "Not x.")
reciprocal = _unary("reciprocal", "reciprocal", "1 / x.", True)

add = _binary("add", "add", "x + y.")
subtract = _binary("subtract", "sub", "x - y.")
multiply = _binary("multiply", "mul", "x * y.")
maximum = _binary("maximum", "max", "The larger of each two elements.")
minimum = _binary("minimum", "min", "The smaller of each two elements.")
pow = _binary("pow", "pow", "x to the power of y.")
atan2 = _binary("atan2", "atan2", "The angle of the point (y, x).")
floordiv = _binary("floordiv", "floor_div", "x / y, rounded down.")
floormod = _binary("floormod", "mod", "The rest of x / y, with the sign of y.")
mod = floormod
greater = _binary("greater", "gt", "x > y.")
greater_equal = _binary("greater_equal", "ge", "x >= y.")
less = _binary("less", "lt", "x < y.")
less_equal = _binary("less_equal", "le", "x <= y.")
logical_and = _binary("logical_and", "logical_and", "x and y.")
logical_or = _binary("logical_or", "logical_or", "x or y.")
logical_xor = _binary("logical_xor", "logical_xor", "Either x or y.")


@op
def abs(x, name=None):
    """The size of each number."""
    x = convert_to_tensor(x)
    return x if raw_dtype(x) == "uint8" else engine.unary("abs", x)


@op
def round(x, name=None):
    """The nearest whole number, the even one of two."""
    return _whole(x, "round")


@op
def floor(x, name=None):
    """The next whole number below."""
    return _whole(x, "floor")


@op
def ceil(x, name=None):
    """The next whole number above."""
    return _whole(x, "ceil")


@op
def rint(x, name=None):
    """The nearest whole number, the even one of two."""
    return _whole(x, "round")


def _whole(x, function):
    x = convert_to_tensor(x)
    return engine.unary(function, x) if "float" in raw_dtype(x) else x


@op
def is_nan(x, name=None):
    """Whether each number is not one."""
    return _of_float(x, "is_nan", False)


@op
def is_inf(x, name=None):
    """Whether each number is infinite."""
    return _of_float(x, "is_inf", False)


@op
def is_finite(x, name=None):
    """Whether each number is neither infinite nor not a number."""
    return _of_float(x, "is_finite", True)


def _of_float(x, function, otherwise):
    x = convert_to_tensor(x)
    return engine.unary(function, x) if "float" in raw_dtype(x) else engine.full(x.shape, otherwise, "bool")


@op
def equal(x, y, name=None):
    """x == y, element by element."""
    if isinstance(x, StringTensor) or isinstance(y, StringTensor):
        return engine.tensor(np.asarray(strings_of(x) == strings_of(y), bool))
    a, b = pair(x, y, "Equal")
    return engine.binary("eq", a, b)


@op
def not_equal(x, y, name=None):
    """x != y, element by element."""
    if isinstance(x, StringTensor) or isinstance(y, StringTensor):
        return engine.tensor(np.asarray(strings_of(x) != strings_of(y), bool))
    a, b = pair(x, y, "NotEqual")
    return engine.binary("ne", a, b)


@op
def divide(x, y, name=None):
    """x / y; of integers as float64, as TensorFlow has it."""
    a, b = pair(x, y, "RealDiv")
    some = a if isinstance(a, Tensor) else b
    if "float" not in raw_dtype(some):
        wide = "float32" if raw_dtype(some) in ("uint8",) else "float64"
        a, b = (engine.cast(v, wide) if isinstance(v, Tensor) else float(v) for v in (a, b))
    return engine.binary("div", a, b)


truediv = divide


@op
def divide_no_nan(x, y, name=None):
    """x / y, and 0 where y is 0."""
    a, b = pair(x, y, "DivNoNan")
    b = convert_to_tensor(b, dtype_hint=getattr(a, "dtype", None))
    zero = engine.binary("eq", b, 0)
    safe = engine.select(zero, engine.full(b.shape, 1, raw_dtype(b)), b)
    return engine.select(zero, engine.full((), 0, raw_dtype(b)), engine.binary("div", a, safe))


@op
def multiply_no_nan(x, y, name=None):
    """x * y, and 0 where y is 0."""
    a, b = pair(x, y, "MulNoNan")
    b = convert_to_tensor(b, dtype_hint=getattr(a, "dtype", None))
    return engine.select(engine.binary("eq", b, 0), engine.full((), 0, raw_dtype(b)), engine.binary("mul", a, b))


@op
def squared_difference(x, y, name=None):
    """(x - y) squared."""
    a, b = pair(x, y, "SquaredDifference")
    return engine.unary("square", engine.binary("sub", a, b))


@op
def xlogy(x, y, name=None):
    """x log(y), and 0 where x is 0."""
    a, b = pair(x, y, "Xlogy")
    a, b = convert_to_tensor(a, dtype_hint=getattr(b, "dtype", None)), convert_to_tensor(b, dtype_hint=getattr(a, "dtype", None))
    zero = engine.binary("eq", a, 0)
    safe = engine.select(zero, engine.full((), 1, raw_dtype(b)), b)
    return engine.select(zero, engine.full((), 0, raw_dtype(a)), engine.binary("mul", a, engine.unary("log", safe)))


@op
def log_sigmoid(x, name=None):
    """log(sigmoid(x)), exact far from 0."""
    return engine.unary("neg", engine.unary("softplus", engine.unary("neg", convert_to_tensor(x))))


@op
def erfc(x, name=None):
    """1 - erf(x)."""
    return engine.binary("sub", 1.0, engine.unary("erf", convert_to_tensor(x)))


@op
def add_n(inputs, name=None):
    """The sum of several tensors."""
    inputs = [convert_to_tensor(x) for x in inputs]
    total = inputs[0]
    for x in inputs[1:]:
        total = engine.binary("add", *pair(total, x, "AddN"))
    return total


accumulate_n = add_n


@op
def cast(x, dtype, name=None):
    """`x` with elements of another type."""
    dtype = as_dtype(dtype)
    if not isinstance(x, Tensor) and not hasattr(x, "dtype"):
        x = np.asarray(x) if not _is_nested_tensor(x) else x
        if isinstance(x, np.ndarray) and x.dtype.kind in "biuf":
            return engine.tensor(x, dtype.name)
    x = convert_to_tensor(x)
    if isinstance(x, StringTensor):
        raise InvalidArgumentError(None, None, "Cast string to numbers is not supported: use tf.strings.to_number")
    return x if raw_dtype(x) == dtype.name else engine.cast(x, dtype.name)


def _is_nested_tensor(x):
    return isinstance(x, (list, tuple)) and any(isinstance(v, (Tensor, engine.Variable, list, tuple)) for v in x)


@op
def saturate_cast(value, dtype, name=None):
    """`value` with elements of another type, those out of its range at its ends."""
    dtype, value = as_dtype(dtype), convert_to_tensor(value)
    low, high = max_of(value.dtype.min, dtype.min), min_of(value.dtype.max, dtype.max)
    return engine.cast(engine.binary("min", engine.binary("max", value, float(low)), float(high)), dtype.name)


max_of, min_of = max, min


@op
def clip_by_value(t, clip_value_min, clip_value_max, name=None):
    """Numbers below and above at the ends of a range."""
    t = convert_to_tensor(t)
    t = engine.binary("max", *pair(t, clip_value_min, "Maximum"))
    return engine.binary("min", *pair(t, clip_value_max, "Minimum"))


def axes_of(axis):
    """An axis, several, or None, as the engine takes them."""
    if axis is None or isinstance(axis, int):
        return axis
    if isinstance(axis, (Tensor, np.ndarray, np.integer)):
        axis = np.asarray(axis).tolist()
        return axis
    return [int(a) for a in axis]


def _reduction(name, kind, doc):
    def reduce(input_tensor, axis=None, keepdims=False, name=None):
        x = convert_to_tensor(input_tensor)
        if kind == "mean" and "float" not in raw_dtype(x):
            # The mean of integers is one, as TensorFlow has it.
            total = engine.reduce("sum", x, axes_of(axis), keepdims)
            count = max_of(x.size // max_of(total.size, 1), 1)
            return engine.binary("floor_div", total, count)
        return engine.reduce(kind, x, axes_of(axis), keepdims)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = doc
    return op(reduce)


reduce_sum = _reduction("reduce_sum", "sum", "The sum over axes, all of them when none is named.")
reduce_mean = _reduction("reduce_mean", "mean", "The mean over axes.")
reduce_max = _reduction("reduce_max", "max", "The largest element over axes.")
reduce_min = _reduction("reduce_min", "min", "The smallest element over axes.")
reduce_prod = _reduction("reduce_prod", "prod", "The product over axes.")
reduce_all = _reduction("reduce_all", "all", "Whether all are true over axes.")
reduce_any = _reduction("reduce_any", "any", "Whether any is true over axes.")


@op
def reduce_variance(input_tensor, axis=None, keepdims=False, name=None):
    """The mean square distance from the mean."""
    x = convert_to_tensor(input_tensor)
    off = engine.binary("sub", x, engine.reduce("mean", x, axes_of(axis), True))
    return engine.reduce("mean", engine.unary("square", off), axes_of(axis), keepdims)


@op
def reduce_std(input_tensor, axis=None, keepdims=False, name=None):
    """The root of the variance."""
    return engine.unary("sqrt", reduce_variance(input_tensor, axis, keepdims))


@op
def reduce_euclidean_norm(input_tensor, axis=None, keepdims=False, name=None):
    """The root of the sum of squares."""
    x = convert_to_tensor(input_tensor)
    return engine.unary("sqrt", engine.reduce("sum", engine.unary("square", x), axes_of(axis), keepdims))


@op
def reduce_logsumexp(input_tensor, axis=None, keepdims=False, name=None):
    """log(sum(exp(x))), without overflow."""
    x = convert_to_tensor(input_tensor)
    top = engine.stop_gradient(engine.reduce("max", x, axes_of(axis), True))
    total = engine.reduce("sum", engine.unary("exp", engine.binary("sub", x, top)), axes_of(axis), keepdims)
    log_total = engine.unary("log", total)
    return engine.binary("add", log_total, engine.reshape(top, list(log_total.shape)))


@op
def count_nonzero(input, axis=None, keepdims=None, dtype="int64", name=None):
    """How many elements are not 0."""
    x = convert_to_tensor(input)
    there = x if raw_dtype(x) == "bool" else engine.binary("ne", x, 0)
    return engine.reduce("sum", engine.cast(there, as_dtype(dtype).name), axes_of(axis), bool(keepdims))


@op
def argmax(input, axis=None, output_type="int64", name=None):
    """Where the largest element along an axis is."""
    return _place("argmax", input, axis, output_type)


@op
def argmin(input, axis=None, output_type="int64", name=None):
    """Where the smallest element along an axis is."""
    return _place("argmin", input, axis, output_type)


def _place(which, x, axis, output_type):
    x = convert_to_tensor(x)
    if raw_dtype(x) == "bool":
        x = engine.cast(x, "int32")
    place = getattr(engine, which)(x, 0 if axis is None else int(axis))
    name = as_dtype(output_type).name
    return place if name == "int64" else engine.cast(place, name)


@op
def cumsum(x, axis=0, exclusive=False, reverse=False, name=None):
    """Running sums along an axis."""
    return engine.cumsum(convert_to_tensor(x), int(axis), exclusive, reverse)


@op
def cumprod(x, axis=0, exclusive=False, reverse=False, name=None):
    """Running products along an axis."""
    return engine.cumprod(convert_to_tensor(x), int(axis), exclusive, reverse)


@op
def top_k(input, k=1, sorted=True, index_type="int32", name=None):
    """The k largest elements along the last axis, and where they stand."""
    values, indices = engine.top_k(convert_to_tensor(input), int(k))
    return TopK(values, engine.cast(indices, as_dtype(index_type).name))


class TopK(tuple):
    """The result of `top_k`."""

    __slots__ = ()

    def __new__(cls, values, indices):
        return tuple.__new__(cls, (values, indices))

    values = property(lambda self: self[0])
    indices = property(lambda self: self[1])


@op
def in_top_k(targets, predictions, k, name=None):
    """Whether the target is among the k largest predictions of each row."""
    predictions, targets = convert_to_tensor(predictions), convert_to_tensor(targets)
    own = engine.take_along(predictions, engine.reshape(targets, [-1, 1]), 1)
    above = engine.cast(engine.binary("gt", predictions, own), "int32")
    return engine.binary("lt", engine.reduce("sum", above, 1, False), int(k))


@op
def confusion_matrix(labels, predictions, num_classes=None, weights=None, dtype="int32", name=None):
    """How often each label was predicted as each class."""
    labels, predictions = convert_to_tensor(labels), convert_to_tensor(predictions)
    if num_classes is None:
        num_classes = 1 + max_of(int(np.max(labels.numpy())), int(np.max(predictions.numpy())))
    dtype = as_dtype(dtype).name
    rows, columns = engine.one_hot(labels, num_classes, "float32"), engine.one_hot(predictions, num_classes, "float32")
    if weights is not None:
        rows = engine.binary("mul", rows, engine.reshape(cast(weights, "float32"), [-1, 1]))
    return engine.cast(engine.matmul(rows, columns, True, False), dtype)


@op
def bincount(arr, weights=None, minlength=None, maxlength=None, dtype="int32", name=None, axis=None, binary_output=False):
    """How often each number occurs."""
    arr = convert_to_tensor(arr)
    flat = engine.reshape(arr, [-1])
    size = 1 + int(np.max(flat.numpy(), initial=-1))
    size = max_of(size, int(minlength or 0))
    size = min_of(size, int(maxlength)) if maxlength is not None else size
    keep = engine.binary("lt", flat, size)
    if weights is None:
        each = engine.cast(keep, "int64")
    else:
        each = engine.select(keep, engine.reshape(convert_to_tensor(weights), [-1]), 0.0)
        dtype = each.dtype
    place = engine.select(keep, flat, 0)
    counts = np.bincount(place.numpy(), each.numpy(), size) if size else np.zeros(0)
    if binary_output:
        counts = counts > 0
    return engine.tensor(counts.astype(as_dtype(dtype).as_numpy_dtype))


@op
def histogram_fixed_width(values, value_range, nbins=100, dtype="int32", name=None):
    """How many values are in each of the equal parts of a range; those outside belong to the first and the last."""
    values = convert_to_tensor(values)
    low, high = (float(v) for v in value_range)
    scaled = engine.binary("mul", engine.binary("sub", engine.reshape(values, [-1]), low), nbins / (high - low))
    place = engine.cast(engine.unary("floor", scaled), "int32")
    place = engine.binary("min", engine.binary("max", place, 0), nbins - 1)
    return engine.cast(engine.scatter_add(place, engine.full(place.shape, 1, "int32"), 0, nbins), as_dtype(dtype).name)


def _segments(name, kind):
    def segment(data, segment_ids, num_segments=None, name=None):
        data, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
        count = int(np.max(ids.numpy(), initial=-1)) + 1 if num_segments is None else int(num_segments)
        if kind in ("sum", "mean"):
            total = engine.scatter_add(ids, data, 0, count)
            if kind == "sum":
                return total
            ones = engine.full([*ids.shape, *([1] * (data.ndim - ids.ndim))], 1, raw_dtype(data))
            return engine.binary("div", total, engine.binary("max", engine.scatter_add(ids, ones, 0, count), 1))
        table = engine.transpose(engine.one_hot(ids, count, "bool"))
        outside = data.dtype.min if kind == "max" else data.dtype.max
        table = engine.reshape(table, [*table.shape, *([1] * (data.ndim - 1))])
        spread = engine.select(table, engine.reshape(data, [1, *data.shape]), engine.full((), outside, raw_dtype(data)))
        return engine.reduce(kind, spread, 1, False)

    segment.__name__ = segment.__qualname__ = name
    segment.__doc__ = f"The {kind} of the rows that share a number."
    return op(segment)


segment_sum = _segments("segment_sum", "sum")
segment_mean = _segments("segment_mean", "mean")
segment_max = _segments("segment_max", "max")
segment_min = _segments("segment_min", "min")
unsorted_segment_sum = _segments("unsorted_segment_sum", "sum")
unsorted_segment_mean = _segments("unsorted_segment_mean", "mean")
unsorted_segment_max = _segments("unsorted_segment_max", "max")
unsorted_segment_min = _segments("unsorted_segment_min", "min")


@op
def l2_normalize(x, axis=None, epsilon=1e-12, name=None):
    """`x` over the root of its sum of squares along axes."""
    x = convert_to_tensor(x)
    total = engine.reduce("sum", engine.unary("square", x), axes_of(axis), True)
    return engine.binary("mul", x, engine.unary("rsqrt", engine.binary("max", total, float(epsilon))))


def _special_function(name, doc):
    def apply(x, name=None):
        x = convert_to_tensor(x)
        if "float" not in raw_dtype(x):
            raise InvalidArgumentError(None, None, f"{apply.__name__} takes floating-point numbers, got {raw_dtype(x)}")
        return getattr(_special, function)(x)

    function = name
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = doc
    return op(apply)


lgamma = _special_function("lgamma", "The logarithm of the absolute value of the gamma function.")
digamma = _special_function("digamma", "The derivative of `lgamma`.")
erfinv = _special_function("erfinv", "The inverse of the error function.")
ndtri = _special_function("ndtri", "The inverse of the normal distribution's function.")


@op
def lbeta(x, name=None):
    """The logarithm of the beta function of the last axis."""
    x = convert_to_tensor(x)
    parts = engine.reduce("sum", lgamma(x), [x.ndim - 1], False)
    return engine.binary("sub", parts, lgamma(engine.reduce("sum", x, [x.ndim - 1], False)))


@op
def polyval(coeffs, x, name=None):
    """A polynomial with the coefficient of the highest power first."""
    x = convert_to_tensor(x)
    total = convert_to_tensor(coeffs[0], dtype_hint=x.dtype)
    for c in coeffs[1:]:
        total = engine.binary("add", *pair(engine.binary("mul", total, x), c, "Add"))
    return total


@op
def range(start, limit=None, delta=1, dtype=None, name="range"):
    """Numbers from `start` up to but without `limit`."""
    if limit is None:
        start, limit = 0, start
    values = [v.numpy() if hasattr(v, "numpy") else v for v in (start, limit, delta)]
    if dtype is None:
        found = [v.dtype for v in values if hasattr(v, "dtype")]
        plain_float = any(isinstance(v, float) for v in values)
        dtype = as_dtype(found[0]) if found else as_dtype("float32" if plain_float else "int32")
    dtype = as_dtype(dtype)
    return engine.tensor(np.arange(*values, dtype=dtype.as_numpy_dtype), dtype.name)


@op
def linspace(start, stop, num, name=None, axis=0):
    """`num` numbers at equal distances, both ends included."""
    start, stop = pair(start, stop, "LinSpace")
    start = convert_to_tensor(start, dtype_hint=getattr(stop, "dtype", None))
    if "float" not in raw_dtype(start):
        start = engine.cast(start, "float64")
        stop = engine.cast(convert_to_tensor(stop), "float64")
    num = int(num)
    if num < 1:
        raise InvalidArgumentError(None, None, f"linspace: num is {num}; at least one number is needed")
    if num == 1:
        return engine.reshape(start, [1, *start.shape])
    step = engine.binary("div", engine.binary("sub", stop, start), float(num - 1))
    places = engine.reshape(engine.iota([num], 0, raw_dtype(start)), [num, *([1] * start.ndim)])
    return engine.binary("add", start, engine.binary("mul", places, step))


def reduced_shape(shape, axis):
    """The sizes with those along `axis` made 1."""
    shape = static_shape(shape)
    for a in np.atleast_1d(axis):
        shape[a] = 1
    return shape
