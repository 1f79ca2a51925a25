"""`keras.ops.numpy`: NumPy's functions with Keras' types, composed from the engine's primitives."""

import builtins
import math as pymath

import numpy as np
from keras.src.backend import config
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.backend_utils import canonicalize_axis
from keras.src.backend.common.backend_utils import vectorize_impl

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import record
from keras_plimsoll.src.core import Tensor
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_numpy
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import on_host
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.record import numpy_dtype


# Types


def scalar(value, dtype):
    return engine.full((), value, dtype)


def like(x, value):
    """The scalar `value` of the type of `x`."""
    return engine.full((), value, x.dtype)


def is_float(x):
    return "float" in x.dtype


def to_float(x):
    """`x` as the float that a function with float results takes it as."""
    x = convert_to_tensor(x)
    if is_float(x):
        return x
    return cast(x, config.floatx() if x.dtype == "int64" else result_type(x.dtype, float))


def promoted(*xs, also=()):
    """The operands as tensors of their common type. Python numbers take the others' type where they can."""
    xs = [x if isinstance(x, (int, float)) else convert_to_tensor(x) for x in xs]
    types = {getattr(x, "dtype", None) for x in xs}
    if len(types) == 1 and None not in types and (not also or "float" in xs[0].dtype):
        return xs
    dtype = result_type(*[getattr(x, "dtype", type(x)) for x in xs], *also)
    return [convert_to_tensor(x, dtype) for x in xs]


def _not_bool(x, instead="int32"):
    return cast(x, instead) if x.dtype == "bool" else x


def _sum_type(dtype):
    return {"bool": "int32", "int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}.get(dtype, dtype)


# Axes


def axes_of(axis, ndim):
    """`axis` as a list of axes counted from the front; None means all."""
    if axis is None:
        return list(range(ndim))
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    return [canonicalize_axis(int(a), ndim) for a in axes]


def part(x, axis, start, stop, step=1):
    """`x[start:stop:step]` along one axis, for bounds inside it."""
    starts, sizes, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], sizes[axis], steps[axis] = start, builtins.max(0, -((start - stop) // step)), step
    return engine.slice(x, starts, sizes, steps)


def along(x, axis, ndim):
    """A vector as a tensor of `ndim` axes that varies along `axis`."""
    shape = [1] * ndim
    shape[axis] = x.shape[0]
    return engine.reshape(x, shape)


# Two operands


def _arithmetic(name, for_bool=None):
    def function(x1, x2):
        a, b = promoted(x1, x2)
        if a.dtype == "bool":
            if for_bool is None:
                raise TypeError(f"`{name}` of booleans is not defined")
            return engine.binary(for_bool, a, b)
        return engine.binary(name, a, b)

    return function


add = _arithmetic("add", "or")
subtract = _arithmetic("sub")
multiply = _arithmetic("mul", "and")
maximum = _arithmetic("max", "or")
minimum = _arithmetic("min", "and")


def divide(x1, x2):
    return engine.binary("div", *promoted(x1, x2, also=(float,)))


true_divide = divide


def divide_no_nan(x1, x2):
    a, b = promoted(x1, x2, also=(float,))
    zero = engine.binary("eq", b, like(b, 0))
    quotient = engine.binary("div", a, engine.select(zero, like(b, 1), b))
    return engine.select(zero, like(quotient, 0), quotient)


def floor_divide(x1, x2):
    a, b = promoted(x1, x2)
    return engine.binary("floor_div", _not_bool(a), _not_bool(b))


def mod(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    return engine.binary("rem", _not_bool(a), _not_bool(b))


def fmod(x1, x2):
    """The remainder with the sign of the dividend."""
    a, b = (_not_bool(x) for x in promoted(convert_to_tensor(x1), convert_to_tensor(x2)))
    if not is_float(a):
        rest = engine.binary("rem", absolute(a), absolute(b))
        return engine.select(engine.binary("lt", a, like(a, 0)), negative(rest), rest)
    rest = engine.binary("rem", absolute(a), absolute(b))
    return engine.select(engine.binary("lt", a, like(a, 0)), negative(rest), rest)


def power(x1, x2):
    a, b = promoted(x1, x2)
    if isinstance(x2, (int, float)) and is_float(a):
        special = {0.5: "sqrt", 2: "square", 1: None}
        if x2 in special:
            return a if x2 == 1 else engine.unary(special[x2], a)
    return engine.binary("pow", _not_bool(a), _not_bool(b))


def float_power(x1, x2):
    a, b = promoted(x1, x2, also=(float,))
    return engine.binary("pow", a, b)


def arctan2(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    return engine.binary("atan2", a, b)


def fmax(x1, x2):
    a, b = promoted(x1, x2)
    return engine.select(isnan(a), b, engine.select(isnan(b), a, maximum(a, b))) if is_float(a) else maximum(a, b)


def fmin(x1, x2):
    a, b = promoted(x1, x2)
    return engine.select(isnan(a), b, engine.select(isnan(b), a, minimum(a, b))) if is_float(a) else minimum(a, b)


def _comparison(name):
    def function(x1, x2):
        a, b = promoted(x1, x2)
        if a.dtype == "bool":
            a, b = cast(a, "uint8"), cast(b, "uint8")
        return engine.binary(name, a, b)

    return function


equal = _comparison("eq")
not_equal = _comparison("ne")
less = _comparison("lt")
less_equal = _comparison("le")
greater = _comparison("gt")
greater_equal = _comparison("ge")


def _logical(name):
    def function(x1, x2):
        return engine.binary(name, cast(x1, "bool"), cast(x2, "bool"))

    return function


logical_and = _logical("and")
logical_or = _logical("or")
logical_xor = _logical("xor")


def logical_not(x):
    return engine.unary("not", cast(x, "bool"))


def _bitwise(name):
    def function(x, y):
        a, b = promoted(x, y)
        if is_float(a):
            raise TypeError(f"bits of {a.dtype} are not defined")
        return engine.binary(name, a, b)

    return function


bitwise_and = _bitwise("and")
bitwise_or = _bitwise("or")
bitwise_xor = _bitwise("xor")


def bitwise_invert(x):
    x = convert_to_tensor(x)
    if x.dtype == "bool":
        return engine.unary("not", x)
    if x.dtype.startswith("uint"):
        return engine.binary("sub", like(x, int(np.iinfo(x.dtype).max)), x)
    return engine.binary("sub", like(x, -1), x)


bitwise_not = bitwise_invert


def _powers_of_two(y, dtype):
    """2**y for whole y of a few dozen at most, exact in an integer type."""
    return cast(engine.unary("round", engine.binary("pow", scalar(2.0, "float64"), cast(y, "float64"))), dtype)


def bitwise_left_shift(x, y):
    a, b = promoted(x, y)
    a, b = _not_bool(a), _not_bool(b)
    return cast(engine.binary("mul", cast(a, "int64"), _powers_of_two(b, "int64")), a.dtype)


def bitwise_right_shift(x, y):
    a, b = promoted(x, y)
    a, b = _not_bool(a), _not_bool(b)
    return cast(engine.binary("floor_div", cast(a, "int64"), _powers_of_two(b, "int64")), a.dtype)


left_shift = bitwise_left_shift
right_shift = bitwise_right_shift


def logaddexp(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    top = engine.binary("max", a, b)
    finite = engine.select(engine.unary("is_finite", top), top, like(top, 0))
    total = engine.binary("add", exp(subtract(a, finite)), exp(subtract(b, finite)))
    far = engine.binary("add", finite, log(total))
    # Where both are near, the difference goes through log1p, which keeps its digits.
    near = engine.binary("add", top, log1p(exp(negative(absolute(subtract(a, b))))))
    return engine.select(engine.unary("is_finite", top), near, far)


def logaddexp2(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    ln2 = pymath.log(2.0)
    return divide(logaddexp(multiply(a, ln2), multiply(b, ln2)), ln2)


def hypot(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    if not is_float(a):
        a, b = cast(a, config.floatx()), cast(b, config.floatx())
    a, b = absolute(a), absolute(b)
    large, small = engine.binary("max", a, b), engine.binary("min", a, b)
    ratio = divide_no_nan(small, large)
    return multiply(large, sqrt(add(square(ratio), 1.0)))


def heaviside(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    if not is_float(a):
        a, b = cast(a, config.floatx()), cast(b, config.floatx())
    step = engine.select(less(a, 0), like(a, 0), like(a, 1))
    return where(equal(a, 0), b, where(isnan(a), a, step))


def gcd(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    (result,) = on_host(np.gcd, [a, b], [(np.broadcast_shapes(a.shape, b.shape), a.dtype)])
    return result


def lcm(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    (result,) = on_host(np.lcm, [a, b], [(np.broadcast_shapes(a.shape, b.shape), a.dtype)])
    return result


def ldexp(x1, x2):
    x1, x2 = convert_to_tensor(x1), convert_to_tensor(x2)
    if is_float(x2):
        raise TypeError(f"ldexp exponent must be an integer type. Received: x2 dtype={x2.dtype}")
    dtype = result_type(x1.dtype, x2.dtype, float)
    return multiply(cast(x1, dtype), engine.binary("pow", scalar(2.0, dtype), cast(x2, dtype)))


def nextafter(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    (result,) = on_host(np.nextafter, [a, b], [(np.broadcast_shapes(a.shape, b.shape), a.dtype)])
    return result


# One operand


def _float_function(name):
    def function(x):
        return engine.unary(name, to_float(x))

    return function


for _name, _primitive in {
    "arccos": "acos",
    "arcsin": "asin",
    "arctan": "atan",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "exp": "exp",
    "expm1": "expm1",
    "floor": "floor",
    "log": "log",
    "log1p": "log1p",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}.items():
    globals()[_name] = _float_function(_primitive)


def arcsinh(x):
    x = to_float(x)
    size = absolute(x)
    # log1p keeps the digits of small arguments: size + size^2 / (1 + sqrt(1 + size^2)).
    square_ = square(size)
    value = log1p(add(size, divide(square_, add(sqrt(add(square_, 1.0)), 1.0))))
    return multiply(sign(x), value)


def arccosh(x):
    x = to_float(x)
    return log(add(x, multiply(sqrt(subtract(x, 1.0)), sqrt(add(x, 1.0)))))


def arctanh(x):
    x = to_float(x)
    return multiply(subtract(log1p(x), log1p(negative(x))), 0.5)


def log2(x):
    x = to_float(x)
    return cast(multiply(log(_wide(x)), 1.0 / pymath.log(2.0)), x.dtype)


def log10(x):
    x = to_float(x)
    return cast(multiply(log(_wide(x)), 1.0 / pymath.log(10.0)), x.dtype)


def _wide(x):
    """Half precision computed in single, where rounding twice would show."""
    return cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


def exp2(x):
    x = to_float(x)
    return engine.binary("pow", like(x, 2.0), x)


def absolute(x):
    x = convert_to_tensor(x)
    return x if x.dtype == "bool" or x.dtype.startswith("uint") else engine.unary("abs", x)


abs = absolute


def fabs(x):
    x = convert_to_tensor(x)
    return absolute(x if is_float(x) else cast(x, config.floatx()))


def negative(x):
    x = convert_to_tensor(x)
    if x.dtype == "bool":
        raise TypeError("the negative of a boolean is not defined")
    return engine.unary("neg", x) if is_float(x) else engine.binary("sub", like(x, 0), x)


def sign(x):
    x = convert_to_tensor(x)
    if x.dtype == "bool" or x.dtype.startswith("uint"):
        return cast(not_equal(x, 0), x.dtype)
    return engine.unary("sign", x)


def square(x):
    x = _not_bool(convert_to_tensor(x))
    return engine.unary("square", x) if is_float(x) else engine.binary("mul", x, x)


def reciprocal(x):
    x = to_float(x)
    return engine.unary("reciprocal", x)


def cbrt(x):
    x = convert_to_tensor(x)
    x = x if is_float(x) else cast(x, config.floatx())
    root = engine.binary("pow", absolute(x), like(x, 1.0 / 3.0))
    return multiply(sign(x), root)


def deg2rad(x):
    x = convert_to_tensor(x)
    x = x if is_float(x) else cast(x, config.floatx())
    return multiply(x, pymath.pi / 180.0)


def rad2deg(x):
    x = convert_to_tensor(x)
    x = x if is_float(x) else cast(x, config.floatx())
    return multiply(x, 180.0 / pymath.pi)


def round(x, decimals=0):
    x = convert_to_tensor(x)
    if x.dtype == "bool":
        raise TypeError("rounding a boolean is not defined")
    if is_float(x):
        if decimals == 0:
            return engine.unary("round", x)
        factor = 10.0**decimals
        return divide(engine.unary("round", multiply(x, factor)), factor)
    if decimals >= 0:
        return x
    factor = 10.0 ** (-decimals)
    wide = cast(x, "float64")
    return cast(multiply(engine.unary("round", divide(wide, scalar(factor, "float64"))), scalar(factor, "float64")), x.dtype)


def trunc(x):
    x = convert_to_tensor(x)
    if not is_float(x):
        return x
    return engine.select(less(x, 0), engine.unary("ceil", x), engine.unary("floor", x))


def isfinite(x):
    x = convert_to_tensor(x)
    return engine.unary("is_finite", x) if is_float(x) else engine.full(x.shape, True, "bool")


def isnan(x):
    x = convert_to_tensor(x)
    return engine.unary("is_nan", x) if is_float(x) else engine.full(x.shape, False, "bool")


def isinf(x):
    x = convert_to_tensor(x)
    return equal(absolute(x), pymath.inf) if is_float(x) else engine.full(x.shape, False, "bool")


def isposinf(x):
    x = convert_to_tensor(x)
    return equal(x, pymath.inf) if is_float(x) else engine.full(x.shape, False, "bool")


def isneginf(x):
    x = convert_to_tensor(x)
    return equal(x, -pymath.inf) if is_float(x) else engine.full(x.shape, False, "bool")


def isreal(x):
    return engine.full(convert_to_tensor(x).shape, True, "bool")


def real(x):
    return convert_to_tensor(x)


def imag(x):
    return zeros_like(x)


def conjugate(x):
    return convert_to_tensor(x)


conj = conjugate


def angle(x):
    """0 for what is not negative, pi for what is."""
    x = to_float(x)
    return where(isnan(x), x, where(signbit(x), like(x, pymath.pi), like(x, 0.0)))


def signbit(x):
    x = convert_to_tensor(x)
    if not is_float(x):
        signed = x.dtype.startswith("int")
        return less(x, 0) if signed else engine.full(x.shape, False, "bool")
    # The angle of (1, -0.0) is -0.0, and its quotient by itself tells the zeros apart.
    below = less(engine.binary("div", like(x, 1.0), x), 0)
    return where(equal(x, 0), below, less(x, 0))


def sinc(x):
    x = to_float(x)
    zero = equal(x, 0)
    angle_ = multiply(engine.select(zero, like(x, 1.0), x), pymath.pi)
    return engine.select(zero, like(x, 1.0), divide(sin(angle_), angle_))


def i0(x):
    """The modified Bessel function, by its series for small and its asymptotic fit for large arguments (Abramowitz and Stegun 9.8.1, 9.8.2)."""
    x = to_float(x)
    size = absolute(cast(x, "float64"))
    small_t = square(divide(size, 3.75))
    small = _polynomial(small_t, [1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.0360768, 0.0045813])
    large_t = divide(scalar(3.75, "float64"), maximum(size, 3.75))
    fit = [0.39894228, 0.01328592, 0.00225319, -0.00157565, 0.00916281, -0.02057706, 0.02635537, -0.01647633, 0.00392377]
    large = multiply(divide(engine.unary("exp", size), engine.unary("sqrt", maximum(size, 3.75))), _polynomial(large_t, fit))
    return cast(engine.select(less(size, 3.75), small, large), x.dtype)


def _polynomial(x, coefficients):
    result = like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = engine.binary("add", engine.binary("mul", result, x), like(x, c))
    return result


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    x = convert_to_tensor(x)
    if not is_float(x):
        return x
    limits = _finfo(x.dtype)
    x = where(isnan(x), like(x, nan), x)
    x = where(isposinf(x), like(x, limits.max if posinf is None else posinf), x)
    return where(isneginf(x), like(x, limits.min if neginf is None else neginf), x)


class _Limits:
    def __init__(self, dtype):
        if dtype == "bfloat16":
            self.max, self.tiny = 3.3895313892515355e38, 1.1754943508222875e-38
        else:
            info = np.finfo(dtype)
            self.max, self.tiny = float(info.max), float(info.tiny)
        self.min = -self.max


def _finfo(dtype):
    return _Limits(dtype)


def clip(x, x_min, x_max):
    x = _not_bool(convert_to_tensor(x))
    if x_min is not None:
        x = engine.binary("max", x, convert_to_tensor(x_min, x.dtype))
    if x_max is not None:
        x = engine.binary("min", x, convert_to_tensor(x_max, x.dtype))
    return x


def copy(x):
    return convert_to_tensor(x)


# Making tensors


def array(x, dtype=None):
    return convert_to_tensor(x, dtype=dtype)


def _size(shape):
    return tuple(int(n) for n in shape) if isinstance(shape, (list, tuple)) or hasattr(shape, "__len__") else (int(shape),)


def full(shape, fill_value, dtype=None):
    dtype = standardize_dtype(dtype)
    if isinstance(fill_value, (bool, int, float)):
        return engine.full(_size(shape), fill_value, dtype)
    return broadcast_to(convert_to_tensor(fill_value, dtype), shape)


def ones(shape, dtype=None):
    return engine.full(_size(shape), 1, standardize_dtype(dtype))


def zeros(shape, dtype=None):
    return engine.full(_size(shape), 0, standardize_dtype(dtype))


empty = zeros


def full_like(x, fill_value, dtype=None):
    x = convert_to_tensor(x)
    return full(x.shape, fill_value, dtype or x.dtype)


def ones_like(x, dtype=None):
    return full_like(x, 1, dtype)


def zeros_like(x, dtype=None):
    return full_like(x, 0, dtype)


def empty_like(x, dtype=None):
    return full_like(x, 0, dtype)


def arange(start, stop=None, step=None, dtype=None):
    if dtype is None:
        dtype = result_type(*[getattr(v, "dtype", type(v)) for v in (start, stop, step) if v is not None])
    dtype = standardize_dtype(dtype)
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number(v) for v in (start, stop, 1 if step is None else step))
    count = builtins.max(0, pymath.ceil((stop - start) / step))
    if dtype == "bool":
        return convert_to_tensor(np.arange(start, stop, step).astype("bool"))
    # Counted in a type that holds every place exactly, so that half precision rounds once.
    wide = "float64" if "float" in dtype else "int64"
    places = engine.iota((count,), 0, wide)
    values = engine.binary("add", engine.binary("mul", places, scalar(step, wide)), scalar(start, wide))
    if wide == "int64" and builtins.any(isinstance(v, float) for v in (start, step)):
        values = convert_to_tensor(np.arange(start, stop, step).astype("int64"), "int64")
    return cast(values, dtype)


def _number(x):
    if isinstance(x, (int, float)):
        return x
    value = convert_to_numpy(x)
    return value.item()


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0):
    if dtype is None:
        dtype = result_type(getattr(start, "dtype", type(start)), getattr(stop, "dtype", type(stop)), float)
    dtype = standardize_dtype(dtype)
    work = dtype if dtype in ("float32", "float64") else "float32"
    start, stop = convert_to_tensor(start, work), convert_to_tensor(stop, work)
    start, stop = _broadcast(start, stop)
    gaps = (num - 1) if endpoint else num
    step = divide(subtract(stop, start), like(start, builtins.max(gaps, 1)))
    fraction = divide(engine.iota((num,), 0, work), scalar(builtins.max(gaps, 1), work))
    fraction = engine.reshape(fraction, (num, *[1] * start.ndim))
    # Towards both ends, so that the last value is `stop` itself.
    values = add(multiply(start, subtract(scalar(1, work), fraction)), multiply(stop, fraction))
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        values = engine.unary("floor", values)
    values = moveaxis(cast(values, dtype), 0, axis) if start.ndim else cast(values, dtype)
    if retstep:
        return values, (step if gaps > 0 else full_like(step, pymath.nan))
    return values


def logspace(start, stop, num=50, endpoint=True, base=10, dtype=None, axis=0):
    if dtype is None:
        dtype = result_type(getattr(start, "dtype", type(start)), getattr(stop, "dtype", type(stop)), float)
    exponents = linspace(start, stop, num=num, endpoint=endpoint, dtype="float64" if dtype != "float64" else dtype, axis=axis)
    return cast(engine.binary("pow", convert_to_tensor(base, exponents.dtype), exponents), dtype)


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    dtype = dtype or config.floatx()
    start, stop = convert_to_tensor(start, "float64"), convert_to_tensor(stop, "float64")
    start, stop = _broadcast(start, stop)
    direction = sign(start)
    exponents = linspace(log(absolute(start)), log(absolute(stop)), num=num, endpoint=endpoint, dtype="float64", axis=axis)
    values = engine.unary("exp", exponents)
    direction = expand_dims(direction, axis) if direction.ndim else direction
    return cast(multiply(values, direction), dtype)


def eye(N, M=None, k=0, dtype=None):
    N, M = int(N), int(N if M is None else M)
    rows, columns = engine.iota((N, M), 0, "int32"), engine.iota((N, M), 1, "int32")
    return cast(equal(add(rows, int(k)), columns), standardize_dtype(dtype))


def identity(n, dtype=None):
    return eye(n, dtype=dtype)


def tri(N, M=None, k=0, dtype=None):
    return cast(_lower(int(N), int(N if M is None else M), int(k)), standardize_dtype(dtype))


def _lower(rows, columns, k):
    i, j = engine.iota((rows, columns), 0, "int32"), engine.iota((rows, columns), 1, "int32")
    return greater_equal(add(i, k), j)


def tril(x, k=0):
    x = convert_to_tensor(x)
    return engine.select(_lower(*x.shape[-2:], int(k)), x, like(x, 0))


def triu(x, k=0):
    x = convert_to_tensor(x)
    return engine.select(_lower(*x.shape[-2:], int(k) - 1), like(x, 0), x)


def diag(x, k=0):
    x = convert_to_tensor(x)
    if x.ndim == 2:
        return diagonal(x, offset=k)
    if x.ndim != 1:
        raise ValueError(f"`x` must be 1-d or 2-d. Received: x.shape={x.shape}")
    size = x.shape[0] + builtins.abs(k)
    row = engine.pad(x, [builtins.max(k, 0)], [builtins.max(-k, 0)])
    return engine.select(cast(eye(size, k=k, dtype="int32"), "bool"), along(row, 1, 2), like(x, 0))


def diagflat(x, k=0):
    return diag(ravel(x), k=k)


def diagonal(x, offset=0, axis1=0, axis2=1):
    x = convert_to_tensor(x)
    axis1, axis2 = canonicalize_axis(axis1, x.ndim), canonicalize_axis(axis2, x.ndim)
    x = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    start = (0, offset) if offset >= 0 else (-offset, 0)
    count = builtins.max(0, builtins.min(rows - start[0], columns - start[1]))
    flat = engine.reshape(x, (*x.shape[:-2], rows * columns))
    first = start[0] * columns + start[1]
    places = convert_to_tensor(np.arange(count, dtype="int32") * (columns + 1) + first, "int32")
    return engine.gather(flat, places, flat.ndim - 1)


def trace(x, offset=0, axis1=0, axis2=1):
    return sum(diagonal(x, offset, axis1, axis2), axis=-1)


def vander(x, N=None, increasing=False):
    x = convert_to_tensor(x)
    dtype = result_type(x.dtype)
    count = x.shape[0] if N is None else int(N)
    work = cast(x, result_type(x.dtype, config.floatx()))
    powers = engine.iota((count,), 0, work.dtype)
    powers = powers if increasing else flip(powers)
    return cast(engine.binary("pow", along(work, 0, 2), along(powers, 1, 2)), dtype)


def meshgrid(*x, indexing="xy"):
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for `indexing` are 'xy' and 'ij'. Received: indexing={indexing}")
    xs = [ravel(convert_to_tensor(v)) for v in x]
    n = len(xs)
    order = list(range(n))
    if indexing == "xy" and n > 1:
        order[0], order[1] = 1, 0
    shape = [0] * n
    for v, axis in zip(xs, order):
        shape[axis] = v.shape[0]
    return [engine.broadcast_to(along(v, axis, n), shape) for v, axis in zip(xs, order)]


def _window(size, coefficients):
    size = int(convert_to_numpy(size))
    dtype = config.floatx()
    if size <= 1:
        return ones((builtins.max(size, 0),), dtype)
    angle_ = multiply(engine.iota((size,), 0, "float64"), scalar(2 * pymath.pi / (size - 1), "float64"))
    total = scalar(0, "float64")
    for n, c in enumerate(coefficients):
        total = add(total, multiply(cos(multiply(angle_, scalar(n, "float64"))), scalar(c, "float64")))
    return cast(total, dtype)


def hamming(x):
    return _window(x, [0.54, -0.46])


def hanning(x):
    return _window(x, [0.5, -0.5])


def blackman(x):
    return _window(x, [0.42, -0.5, 0.08])


def bartlett(x):
    size = int(convert_to_numpy(x))
    if size <= 1:
        return ones((builtins.max(size, 0),))
    place = engine.iota((size,), 0, config.floatx())
    half = (size - 1) / 2.0
    return subtract(1.0, divide(absolute(subtract(place, half)), half))


def kaiser(x, beta):
    size = int(convert_to_numpy(x))
    if size <= 1:
        return ones((builtins.max(size, 0),))
    place = engine.iota((size,), 0, "float64")
    half = (size - 1) / 2.0
    beta = convert_to_tensor(beta, "float64")
    inside = engine.unary("sqrt", maximum(subtract(scalar(1, "float64"), square(divide(subtract(place, half), half))), 0))
    return cast(divide(i0(multiply(inside, beta)), i0(beta)), config.floatx())


# Shape


def shape_of(newshape):
    return [int(n) for n in newshape] if isinstance(newshape, (list, tuple)) else [int(newshape)]


def reshape(x, newshape):
    x = convert_to_tensor(x)
    sizes = shape_of(newshape)
    if -1 in sizes:
        rest = pymath.prod(n for n in sizes if n != -1)
        total = pymath.prod(x.shape)
        if sizes.count(-1) > 1 or (rest and total % rest):
            raise ValueError(f"cannot reshape a tensor of shape {x.shape} into {tuple(sizes)}")
        sizes[sizes.index(-1)] = total // rest if rest else 0
    return engine.reshape(x, sizes)


def ravel(x):
    return reshape(x, (-1,))


def transpose(x, axes=None):
    x = convert_to_tensor(x)
    axes = list(range(x.ndim))[::-1] if axes is None else axes_of(axes, x.ndim)
    return engine.transpose(x, axes)


def swapaxes(x, axis1, axis2):
    x = convert_to_tensor(x)
    axes = list(range(x.ndim))
    a, b = canonicalize_axis(axis1, x.ndim), canonicalize_axis(axis2, x.ndim)
    axes[a], axes[b] = axes[b], axes[a]
    return engine.transpose(x, axes)


def moveaxis(x, source, destination):
    x = convert_to_tensor(x)
    source, destination = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    order = [axis for axis in range(x.ndim) if axis not in source]
    for to, axis in sorted(zip(destination, source)):
        order.insert(to, axis)
    return engine.transpose(x, order)


def expand_dims(x, axis):
    x = convert_to_tensor(x)
    axes = axis if isinstance(axis, (list, tuple)) else [axis]
    ndim = x.ndim + len(axes)
    axes = sorted(canonicalize_axis(a, ndim) for a in axes)
    sizes = list(x.shape)
    for a in axes:
        sizes.insert(a, 1)
    return engine.reshape(x, sizes)


def squeeze(x, axis=None):
    x = convert_to_tensor(x)
    axes = [i for i, n in enumerate(x.shape) if n == 1] if axis is None else axes_of(axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"cannot squeeze axis {a} of size {x.shape[a]}; the shape is {x.shape}")
    return engine.reshape(x, [n for i, n in enumerate(x.shape) if i not in axes])


def broadcast_to(x, shape):
    return engine.broadcast_to(convert_to_tensor(x), shape_of(shape))


def _broadcast(*xs):
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    return [x if tuple(x.shape) == shape else engine.broadcast_to(x, shape) for x in xs]


def ndim(x):
    return convert_to_tensor(x).ndim


def size(x):
    return pymath.prod(convert_to_tensor(x).shape)


def flip(x, axis=None):
    x = convert_to_tensor(x)
    return engine.flip(x, axes_of(axis, x.ndim)) if x.ndim else x


def fliplr(x):
    return flip(x, 1)


def flipud(x):
    return flip(x, 0)


def rot90(array, k=1, axes=(0, 1)):
    array = convert_to_tensor(array)
    if array.ndim < 2:
        raise ValueError(f"Input array must have at least 2 dimensions. Received: array.ndim={array.ndim}")
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ValueError(f"Invalid axes: {axes}. Axes must be a tuple of two different dimensions.")
    a, b = axes_of(axes, array.ndim)
    turns = k % 4
    if turns == 0:
        return array
    if turns == 2:
        return engine.flip(array, [a, b])
    return swapaxes(flip(array, b), a, b) if turns == 1 else flip(swapaxes(array, a, b), b)


def roll(x, shift, axis=None):
    x = convert_to_tensor(x)
    if axis is None:
        return reshape(roll(ravel(x), builtins.sum(shift) if isinstance(shift, (list, tuple)) else shift, 0), x.shape)
    axes = axes_of(axis, x.ndim)
    shifts = list(shift) if isinstance(shift, (list, tuple)) else [shift] * len(axes)
    for a, s in zip(axes, shifts):
        if isinstance(s, Tensor) and record.is_symbolic(s):
            count = engine.full((), x.shape[a], "int32")
            places = engine.binary("rem", subtract(engine.iota((x.shape[a],), 0, "int32"), cast(s, "int32")), count)
            x = engine.gather(x, places, a)
            continue
        n = x.shape[a]
        s = int(s) % n if n else 0
        if s:
            x = engine.concat([part(x, a, n - s, n), part(x, a, 0, n - s)], a)
    return x


def tile(x, repeats):
    x = convert_to_tensor(x)
    repeats = [int(r) for r in convert_to_numpy(repeats).reshape(-1)] if not isinstance(repeats, (list, tuple, int)) else repeats
    repeats = [int(r) for r in repeats] if isinstance(repeats, (list, tuple)) else [int(repeats)]
    if len(repeats) < x.ndim:
        repeats = [1] * (x.ndim - len(repeats)) + repeats
    if len(repeats) > x.ndim:
        x = engine.reshape(x, [1] * (len(repeats) - x.ndim) + list(x.shape))
    return engine.tile(x, repeats)


def repeat(x, repeats, axis=None):
    x = convert_to_tensor(x)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonicalize_axis(axis, x.ndim)
    counts = repeats if isinstance(repeats, int) else convert_to_numpy(repeats).reshape(-1)
    if not isinstance(counts, int) and counts.size == 1:
        counts = int(counts[0])
    if isinstance(counts, int):
        wide = engine.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
        wide = engine.broadcast_to(wide, (*x.shape[: axis + 1], counts, *x.shape[axis + 1 :]))
        return engine.reshape(wide, (*x.shape[:axis], x.shape[axis] * counts, *x.shape[axis + 1 :]))
    return engine.gather(x, convert_to_tensor(np.repeat(np.arange(x.shape[axis]), counts), "int32"), axis)


def pad(x, pad_width, mode="constant", constant_values=None):
    x = convert_to_tensor(x)
    if constant_values is not None and mode != "constant":
        raise ValueError(
            "Argument `constant_values` can only be provided when `mode == 'constant'`. " f"Received: mode={mode}"
        )
    widths = np.broadcast_to(np.asarray(convert_to_numpy(pad_width) if isinstance(pad_width, Tensor) else pad_width), (x.ndim, 2))
    before, after = [int(w) for w in widths[:, 0]], [int(w) for w in widths[:, 1]]
    if mode == "constant":
        return _pad_constant(x, before, after, 0 if constant_values is None else constant_values)
    if mode not in ("reflect", "symmetric", "edge", "wrap"):
        raise ValueError(f"unknown padding mode: {mode}")
    for axis, (low, high) in enumerate(zip(before, after)):
        if low or high:
            places = np.pad(np.arange(x.shape[axis]), (low, high), mode=mode)
            x = engine.gather(x, convert_to_tensor(places, "int32"), axis)
    return x


def _pad_constant(x, before, after, value):
    if isinstance(value, (bool, int, float)):
        if value == 0:
            return engine.pad(x, before, after)
        value = like(x, value)
    inside = engine.pad(engine.full(x.shape, 1, "uint8"), before, after)
    return engine.select(cast(inside, "bool"), engine.pad(x, before, after), cast(value, x.dtype))


def _common_type(xs):
    xs = [convert_to_tensor(x) for x in xs]
    dtypes = {x.dtype for x in xs}
    return [cast(x, result_type(*dtypes)) for x in xs] if len(dtypes) > 1 else xs


def concatenate(xs, axis=0):
    xs = _common_type(xs)
    if axis is None:
        return engine.concat([ravel(x) for x in xs], 0)
    return engine.concat(xs, canonicalize_axis(axis, xs[0].ndim))


def append(x1, x2, axis=None):
    return concatenate([ravel(x1), ravel(x2)] if axis is None else [x1, x2], axis=axis or 0)


def stack(x, axis=0):
    xs = _common_type(list(x))
    for other in xs[1:]:
        if other.shape != xs[0].shape:
            raise ValueError(f"all input arrays must have the same shape, got {xs[0].shape} and {other.shape}")
    axis = canonicalize_axis(axis, xs[0].ndim + 1)
    return engine.concat([expand_dims(v, axis) for v in xs], axis)


def hstack(xs):
    xs = [atleast_1d(x) for x in _common_type(xs)]
    return concatenate(xs, axis=0 if xs[0].ndim == 1 else 1)


def vstack(xs):
    return concatenate([atleast_2d(x) for x in _common_type(xs)], axis=0)


def dstack(xs):
    return concatenate([atleast_3d(x) for x in _common_type(xs)], axis=2)


def atleast_1d(x):
    x = convert_to_tensor(x)
    return reshape(x, (1,)) if x.ndim == 0 else x


def atleast_2d(x):
    x = atleast_1d(x)
    return expand_dims(x, 0) if x.ndim == 1 else x


def atleast_3d(x):
    x = atleast_2d(x)
    return expand_dims(x, -1) if x.ndim == 2 else x


def split(x, indices_or_sections, axis=0):
    x = convert_to_tensor(x)
    axis = canonicalize_axis(axis, x.ndim)
    if isinstance(indices_or_sections, int):
        if x.shape[axis] % indices_or_sections:
            raise ValueError(f"axis {axis} of size {x.shape[axis]} does not divide into {indices_or_sections} equal parts")
    return array_split(x, indices_or_sections, axis)


def array_split(x, indices_or_sections, axis=0):
    x = convert_to_tensor(x)
    axis = canonicalize_axis(axis, x.ndim)
    total = x.shape[axis]
    if isinstance(indices_or_sections, int):
        each, more = divmod(total, indices_or_sections)
        sizes = [each + 1] * more + [each] * (indices_or_sections - more)
        cuts = [0, *np.cumsum(sizes).tolist()]
    else:
        places = convert_to_numpy(indices_or_sections).reshape(-1).tolist() if not isinstance(indices_or_sections, (list, tuple)) else indices_or_sections
        cuts = [0, *[builtins.min(builtins.max(int(p) if p >= 0 else int(p) + total, 0), total) for p in places], total]
    return [part(x, axis, a, builtins.max(a, b)) for a, b in zip(cuts[:-1], cuts[1:])]


def hsplit(x, indices_or_sections):
    x = convert_to_tensor(x)
    return split(x, indices_or_sections, axis=0 if x.ndim == 1 else 1)


def vsplit(x, indices_or_sections):
    return split(x, indices_or_sections, axis=0)


def dsplit(x, indices_or_sections):
    return split(x, indices_or_sections, axis=2)


# Reductions


def _reduce(kind, x, axis, keepdims):
    axes = axes_of(axis, x.ndim)
    return engine.reduce(kind, x, axes, keepdims) if axes else x


def sum(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    return _reduce("sum", cast(x, _sum_type(x.dtype)), axis, keepdims)


def mean(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    if is_float(x):
        # Half precision overflows in a sum long before its mean does.
        return cast(_reduce("mean", _wide(x), axis, keepdims), x.dtype)
    return _reduce("mean", cast(x, result_type(x.dtype, "float32")), axis, keepdims)


def prod(x, axis=None, keepdims=False, dtype=None):
    x = convert_to_tensor(x)
    dtype = standardize_dtype(dtype) if dtype is not None else _sum_type(result_type(x.dtype))
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
    return cast(sqrt(_wide(var(_wide(x), axis, keepdims))), x.dtype)


def average(x, axis=None, weights=None):
    x = convert_to_tensor(x)
    if weights is None:
        return mean(cast(x, result_type(x.dtype, float)), axis=axis)
    weights = convert_to_tensor(weights)
    dtype = result_type(x.dtype, weights.dtype, float)
    x, weights = cast(x, dtype), cast(weights, dtype)
    if axis is not None and weights.ndim == 1 and x.ndim > 1:
        weights = along(weights, axes_of(axis, x.ndim)[0], x.ndim)
    total = sum(_broadcast(weights, x)[0], axis=axis)
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
        x = _wide(x)
        x = where(logical_and(equal(x, 0), signbit(x)), like(x, -_finfo(x.dtype).tiny), x)
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


# Not-a-number


def _without_nan(x, value):
    x = convert_to_tensor(x)
    return where(isnan(x), like(x, value), x) if is_float(x) else x


def nansum(x, axis=None, keepdims=False):
    return sum(_without_nan(x, 0), axis, keepdims)


def nanprod(x, axis=None, keepdims=False):
    return prod(_without_nan(x, 1), axis, keepdims)


def nancumsum(x, axis=None, dtype=None):
    return cumsum(_without_nan(x, 0), axis, dtype)


def nancumprod(x, axis=None, dtype=None):
    return cumprod(_without_nan(x, 1), axis, dtype)


def nanmax(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    if not is_float(x):
        return max(x, axis, keepdims)
    result = max(_without_nan(x, -pymath.inf), axis, keepdims)
    return where(all(isnan(x), axis, keepdims), like(result, pymath.nan), result)


def nanmin(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    if not is_float(x):
        return min(x, axis, keepdims)
    result = min(_without_nan(x, pymath.inf), axis, keepdims)
    return where(all(isnan(x), axis, keepdims), like(result, pymath.nan), result)


def _nan_count(x, axis, keepdims, dtype):
    return sum(cast(logical_not(isnan(x)), dtype), axis, keepdims)


def nanmean(x, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    dtype = result_type(x.dtype, float)
    work = _wide(cast(x, dtype))
    total = sum(_without_nan(work, 0), axis, keepdims)
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
    return where(all(isnan(x), axis, keepdims), scalar(-1, "int32"), function(_without_nan(x, instead), axis, keepdims))


def nanargmax(x, axis=None, keepdims=False):
    return _nan_arg(argmax, x, axis, keepdims, -pymath.inf)


def nanargmin(x, axis=None, keepdims=False):
    return _nan_arg(argmin, x, axis, keepdims, pymath.inf)


# Order


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
    places = multiply(points, last)
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
        values = add(a, multiply(subtract(b, a), share))
    else:
        raise ValueError(f"unknown method of interpolation: {method}")
    if spoiled is not None:
        values = where(spoiled, like(values, pymath.nan), values)
    if counts is not None:
        values = where(less(last if last.ndim == 0 else last, 0), like(values, pymath.nan), values)
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
    lambda flat: engine.sort(_without_nan(flat, pymath.inf), flat.ndim - 1, False)[0],
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
    x = cast(x, "int32")
    if weights is None:
        dtype, weights = "int32", engine.full(x.shape, 1, "int32")
    else:
        weights = convert_to_tensor(weights)
        dtype = result_type(x.dtype, weights.dtype)
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


# Choosing


def where(condition, x1=None, x2=None):
    if x1 is None and x2 is None:
        return nonzero(condition)
    if x1 is None or x2 is None:
        raise ValueError("`x1` and `x2` either both should be `None` or both should have non-None value.")
    return engine.select(cast(condition, "bool"), *promoted(x1, x2))


def select(condlist, choicelist, default=0):
    *choices, result = promoted(*choicelist, default)
    for condition, choice in reversed(list(zip(condlist, choices))):
        result = where(condition, choice, result)
    return result


def take(x, indices, axis=None):
    x = convert_to_tensor(x)
    indices = _indices(indices)
    if axis is None:
        x, axis = ravel(x), 0
    axis = canonicalize_axis(axis, x.ndim)
    return engine.gather(x, _from_front(indices, x.shape[axis]), axis)


def _indices(indices):
    indices = convert_to_tensor(indices)
    return indices if indices.dtype in ("int32", "int64") else cast(indices, "int32")


def _from_front(indices, size_):
    """Indices counted from the end made into those from the front."""
    return engine.select(less(indices, 0), engine.binary("add", indices, like(indices, size_)), indices)


def take_along_axis(x, indices, axis=None):
    x, indices = convert_to_tensor(x), _indices(indices)
    if axis is None:
        if indices.ndim != 1:
            raise ValueError(f"`indices` must be 1D if axis=None. Received: indices.shape={indices.shape}")
        x, axis = ravel(x), 0
    if x.ndim != indices.ndim:
        raise ValueError(
            "`x` and `indices` must have the same number of dimensions, "
            f"but receive shape {x.shape} and {indices.shape}."
        )
    axis = canonicalize_axis(axis, x.ndim)
    others = lambda shape: [1 if i == axis else n for i, n in enumerate(shape)]
    common = np.broadcast_shapes(others(x.shape), others(indices.shape))
    at = lambda n: [n if i == axis else m for i, m in enumerate(common)]
    x = engine.broadcast_to(x, at(x.shape[axis]))
    indices = engine.broadcast_to(indices, at(indices.shape[axis]))
    return engine.take_along(x, _from_front(indices, x.shape[axis]), axis)


def unravel_index(indices, shape):
    indices = convert_to_tensor(indices)
    dtype = indices.dtype
    rest = indices if dtype == "int64" else cast(indices, "int64")
    total = pymath.prod(shape)
    rest = _from_front(rest, total)
    found = []
    for n in reversed(shape):
        found.append(cast(engine.binary("rem", rest, like(rest, n)), dtype))
        rest = engine.binary("floor_div", rest, like(rest, n))
    return tuple(reversed(found))


# Products


def matmul(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul takes at least one axis. Received: shapes {a.shape} and {b.shape}")
    a, b = _wide_products(a), _wide_products(b)
    left, right = a.ndim == 1, b.ndim == 1
    a = expand_dims(a, 0) if left else a
    b = expand_dims(b, -1) if right else b
    product = _product(a, b)
    if right:
        product = squeeze(product, -1)
    return squeeze(product, -1 if right else -2) if left else product


def _wide_products(x):
    """Products of bytes are summed up in 32 bits."""
    return cast(x, "int32") if x.dtype in ("bool", "int8") else x


def _product(a, b):
    """The matrix product; of integers through a float type that holds them."""
    if is_float(a):
        return engine.matmul(a, b)
    exact = engine.matmul(cast(a, "float64"), cast(b, "float64"))
    return cast(exact, a.dtype)


def dot(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    if a.ndim == 0 or b.ndim == 0:
        return multiply(a, b)
    if b.ndim == 1:
        return tensordot(a, b, axes=[[-1], [0]])
    return tensordot(a, b, axes=[[-1], [-2]])


def tensordot(x1, x2, axes=2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = (list(side) if isinstance(side, (list, tuple)) else [side] for side in axes)
    left, right = axes_of(left, a.ndim), axes_of(right, b.ndim)
    free_a = [i for i in range(a.ndim) if i not in left]
    free_b = [i for i in range(b.ndim) if i not in right]
    inner_ = pymath.prod(a.shape[i] for i in left)
    out = [a.shape[i] for i in free_a] + [b.shape[i] for i in free_b]
    a = engine.reshape(engine.transpose(a, free_a + left), (pymath.prod(a.shape[i] for i in free_a), inner_))
    b = engine.reshape(engine.transpose(b, right + free_b), (inner_, pymath.prod(b.shape[i] for i in free_b)))
    return engine.reshape(matmul(a, b), out)


def inner(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    return multiply(a, b) if a.ndim == 0 or b.ndim == 0 else tensordot(a, b, axes=[[-1], [-1]])


def outer(x1, x2):
    a, b = promoted(ravel(x1), ravel(x2))
    return multiply(expand_dims(a, 1), expand_dims(b, 0))


def vdot(x1, x2):
    return dot(ravel(x1), ravel(x2))


def kron(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    ndim_ = builtins.max(a.ndim, b.ndim)
    a = engine.reshape(a, [1] * (ndim_ - a.ndim) + list(a.shape))
    b = engine.reshape(b, [1] * (ndim_ - b.ndim) + list(b.shape))
    left = [m for n in a.shape for m in (n, 1)]
    right = [m for n in b.shape for m in (1, n)]
    product = multiply(engine.reshape(a, left), engine.reshape(b, right))
    return engine.reshape(product, [m * n for m, n in zip(a.shape, b.shape)])


def cross(x1, x2, axisa=-1, axisb=-1, axisc=-1, axis=None):
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise ValueError(
            "`x1`'s dim on `axis={axisa}` must be either 2 or 3, and likewise `x2`'s. "
            f"Received: x1.shape={a.shape}, x2.shape={b.shape}"
        )
    flat = a.shape[-1] == 2 and b.shape[-1] == 2

    def coordinates(v):
        parts = [squeeze(p, -1) for p in split(v, v.shape[-1], -1)]
        return parts if len(parts) == 3 else [*parts, zeros_like(parts[0])]

    (a0, a1, a2), (b0, b1, b2) = coordinates(a), coordinates(b)
    last = subtract(multiply(a0, b1), multiply(a1, b0))
    if flat:
        return last
    first = subtract(multiply(a1, b2), multiply(a2, b1))
    second = subtract(multiply(a2, b0), multiply(a0, b2))
    return moveaxis(stack(_broadcast(first, second, last), axis=-1), -1, axisc)


def einsum(subscripts, *operands, **kwargs):
    operands = [_wide_products(x) for x in promoted(*[convert_to_tensor(x) for x in operands])]
    dtype = operands[0].dtype
    if not is_float(operands[0]):
        operands = [cast(x, "float64") for x in operands]
    return cast(engine.einsum(_explicit(subscripts, operands), operands), dtype)


def _explicit(subscripts, operands):
    """The formula with its output named and each ellipsis written out in letters."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"einsum '{subscripts}' names {len(terms)} operands and got {len(operands)}")
    if "..." in text:
        free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
        counts = [x.ndim - len(term.replace("...", "")) if "..." in term else 0 for term, x in zip(terms, operands)]
        letters = "".join(free[: builtins.max(counts)])
        terms = [term.replace("...", letters[len(letters) - n :]) for term, n in zip(terms, counts)]
        output = output.replace("...", letters)
    else:
        letters = ""
    if not arrow:
        joined = "".join(terms)
        output = letters + "".join(sorted(c for c in set(joined) - set(letters) if joined.count(c) == 1))
    return ",".join(terms) + "->" + output


def corrcoef(x):
    x = convert_to_tensor(x)
    x = x if is_float(x) else cast(x, config.floatx())
    dtype = x.dtype
    rows = _wide(atleast_2d(x))
    centered = subtract(rows, mean(rows, axis=-1, keepdims=True))
    covariance = matmul(centered, transpose(centered))
    spread = sqrt(diagonal(covariance))
    result = divide(covariance, multiply(expand_dims(spread, 1), expand_dims(spread, 0)))
    result = cast(clip(result, -1.0, 1.0), dtype)
    return reshape(result, ()) if x.ndim <= 1 else result


def correlate(x1, x2, mode="valid"):
    dtype = result_type(getattr(x1, "dtype", type(x1)), getattr(x2, "dtype", type(x2)))
    dtype = dtype if dtype in ("bfloat16", "float16", "float64") else "float32"
    a, b = convert_to_tensor(x1, dtype), convert_to_tensor(x2, dtype)
    if mode not in ("valid", "same", "full"):
        raise ValueError(f"`mode` must be one of ('valid', 'same', 'full'). Received: mode={mode}")
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"Both inputs must be 1-dimensional. Received: x1.shape={a.shape}, x2.shape={b.shape}")
    swapped = a.shape[0] < b.shape[0]
    if swapped:
        a, b = b, a
    long, short = a.shape[0], b.shape[0]
    extra = {"valid": (0, 0), "same": (short // 2, (short - 1) // 2), "full": (short - 1, short - 1)}[mode]
    if mode == "same" and swapped:
        extra = extra[::-1]
    a = engine.pad(a, [extra[0]], [extra[1]])
    count = long + builtins.sum(extra) - short + 1
    windows = add(engine.iota((count, short), 0, "int32"), engine.iota((count, short), 1, "int32"))
    result = sum(multiply(engine.gather(a, windows, 0), b), axis=-1)
    return flip(result) if swapped else result


def allclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    return all(isclose(x1, x2, rtol, atol, equal_nan))


def isclose(x1, x2, rtol=1e-5, atol=1e-8, equal_nan=False):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    near = less_equal(absolute(subtract(a, b)), add(multiply(absolute(b), rtol), atol))
    finite = logical_and(isfinite(a), isfinite(b))
    result = where(finite, near, equal(a, b))
    return logical_or(result, logical_and(isnan(a), isnan(b))) if equal_nan else result


def vectorize(pyfunc, *, excluded=None, signature=None):
    from keras_plimsoll.src.core import vectorized_map

    def mapped(function, in_axes=None):
        def over(*args):
            axes = in_axes or [0] * len(args)
            moving = [a for a, axis in zip(args, axes) if axis is not None]

            def once(parts):
                parts = iter(parts)
                return function(*[a if axis is None else next(parts) for a, axis in zip(args, axes)])

            return vectorized_map(once, moving)

        return over

    return vectorize_impl(pyfunc, mapped, excluded=excluded, signature=signature)


def view(x, dtype=None):
    x = convert_to_tensor(x)
    if dtype is None:
        return x
    dtype = standardize_dtype(dtype)
    last = x.shape[-1] * numpy_dtype(x.dtype).itemsize // numpy_dtype(dtype).itemsize
    (result,) = on_host(lambda v: v.view(numpy_dtype(dtype)), [x], [((*x.shape[:-1], last), dtype)])
    return result


def slogdet(x):
    x = to_float(x)
    sign_, log_ = on_host(
        lambda v: tuple(np.linalg.slogdet(v)), [x], [(x.shape[:-2], x.dtype), (x.shape[:-2], x.dtype)]
    )
    return sign_, log_
