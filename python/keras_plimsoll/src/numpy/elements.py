"""Functions of the elements of one operand."""

import math as pymath

import numpy as np
from keras.src.backend import config

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.numpy.types import is_float
from keras_plimsoll.src.numpy.types import like
from keras_plimsoll.src.numpy.types import not_bool
from keras_plimsoll.src.numpy.types import scalar
from keras_plimsoll.src.numpy.types import to_float
from keras_plimsoll.src.numpy.arithmetic import absolute
from keras_plimsoll.src.numpy.arithmetic import add
from keras_plimsoll.src.numpy.arithmetic import divide
from keras_plimsoll.src.numpy.arithmetic import equal
from keras_plimsoll.src.numpy.arithmetic import isnan
from keras_plimsoll.src.numpy.arithmetic import less
from keras_plimsoll.src.numpy.arithmetic import log
from keras_plimsoll.src.numpy.arithmetic import log1p
from keras_plimsoll.src.numpy.arithmetic import maximum
from keras_plimsoll.src.numpy.arithmetic import multiply
from keras_plimsoll.src.numpy.arithmetic import negative
from keras_plimsoll.src.numpy.arithmetic import not_equal
from keras_plimsoll.src.numpy.arithmetic import sin
from keras_plimsoll.src.numpy.arithmetic import sqrt
from keras_plimsoll.src.numpy.arithmetic import square
from keras_plimsoll.src.numpy.arithmetic import subtract
from keras_plimsoll.src.numpy.arithmetic import where


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
    return cast(multiply(log(widened(x)), 1.0 / pymath.log(2.0)), x.dtype)


def log10(x):
    x = to_float(x)
    return cast(multiply(log(widened(x)), 1.0 / pymath.log(10.0)), x.dtype)


def widened(x):
    """Half precision computed in single, where rounding twice would show."""
    return cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


def exp2(x):
    x = to_float(x)
    return engine.binary("pow", like(x, 2.0), x)


def fabs(x):
    x = convert_to_tensor(x)
    return absolute(x if is_float(x) else cast(x, config.floatx()))


def sign(x):
    x = convert_to_tensor(x)
    if x.dtype == "bool" or x.dtype.startswith("uint"):
        return cast(not_equal(x, 0), x.dtype)
    return engine.unary("sign", x)


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
    return engine.full(x.shape, 0, x.dtype)


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
    limits = float_info(x.dtype)
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


def float_info(dtype):
    return _Limits(dtype)


def clip(x, x_min, x_max):
    x = not_bool(convert_to_tensor(x))
    if x_min is not None:
        x = engine.binary("max", x, convert_to_tensor(x_min, x.dtype))
    if x_max is not None:
        x = engine.binary("min", x, convert_to_tensor(x_max, x.dtype))
    return x


def copy(x):
    return convert_to_tensor(x)
