"""Arithmetic, comparisons, logic and bits of two operands, and the few functions of one that they need."""

import math as pymath

import numpy as np
from keras.src.backend import config
from plimsoll import _special

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import on_host
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy.types import is_float
from keras_plimsoll.src.numpy.types import like
from keras_plimsoll.src.numpy.types import not_bool
from keras_plimsoll.src.numpy.types import promoted
from keras_plimsoll.src.numpy.types import scalar
from keras_plimsoll.src.numpy.types import to_float


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
    return engine.binary("floor_div", not_bool(a), not_bool(b))


def mod(x1, x2):
    a, b = promoted(convert_to_tensor(x1), convert_to_tensor(x2))
    return engine.binary("rem", not_bool(a), not_bool(b))


def fmod(x1, x2):
    """The remainder with the sign of the dividend."""
    a, b = (not_bool(x) for x in promoted(convert_to_tensor(x1), convert_to_tensor(x2)))
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
    return engine.binary("pow", not_bool(a), not_bool(b))


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


def bitwise_left_shift(x, y):
    a, b = promoted(x, y)
    return _special.shift(not_bool(a), not_bool(b), True)


def bitwise_right_shift(x, y):
    a, b = promoted(x, y)
    return _special.shift(not_bool(a), not_bool(b), False)


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


def isnan(x):
    x = convert_to_tensor(x)
    return engine.unary("is_nan", x) if is_float(x) else engine.full(x.shape, False, "bool")


def square(x):
    x = not_bool(convert_to_tensor(x))
    return engine.unary("square", x) if is_float(x) else engine.binary("mul", x, x)


def negative(x):
    x = convert_to_tensor(x)
    if x.dtype == "bool":
        raise TypeError("the negative of a boolean is not defined")
    return engine.unary("neg", x) if is_float(x) else engine.binary("sub", like(x, 0), x)


def absolute(x):
    x = convert_to_tensor(x)
    return x if x.dtype == "bool" or x.dtype.startswith("uint") else engine.unary("abs", x)


def where(condition, x1=None, x2=None):
    if x1 is None and x2 is None:
        from keras_plimsoll.src.numpy.order import nonzero

        return nonzero(condition)
    if x1 is None or x2 is None:
        raise ValueError("`x1` and `x2` either both should be `None` or both should have non-None value.")
    return engine.select(cast(condition, "bool"), *promoted(x1, x2))


abs = absolute


def _float_function(name):
    def function(x):
        return engine.unary(name, to_float(x))

    return function


arccos = _float_function("acos")
arcsin = _float_function("asin")
arctan = _float_function("atan")
ceil = _float_function("ceil")
cos = _float_function("cos")
cosh = _float_function("cosh")
exp = _float_function("exp")
expm1 = _float_function("expm1")
floor = _float_function("floor")
log = _float_function("log")
log1p = _float_function("log1p")
sin = _float_function("sin")
sinh = _float_function("sinh")
sqrt = _float_function("sqrt")
tan = _float_function("tan")
tanh = _float_function("tanh")
