"""Special functions, composed from operations that have gradients. They compute in double precision and give back their argument's type."""

import math
from functools import reduce

from plimsoll import _engine as engine

# Lanczos' approximation of the gamma function, with g = 7.
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)

# Of the expansion of digamma for large arguments: the terms beyond log(x) - 1/(2x), in powers of 1/x².
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)


def _add(a, b):
    return engine.binary("add", a, b)


def _sub(a, b):
    return engine.binary("sub", a, b)


def _mul(a, b):
    return engine.binary("mul", a, b)


def _div(a, b):
    return engine.binary("div", a, b)


def _in_double(function):
    def apply(x):
        result = function(engine.cast(x, "float64"))
        return engine.cast(result, x.dtype)

    return apply


def _reflected(x):
    """Arguments of at least one half, and which of them were turned round."""
    low = engine.binary("lt", x, 0.5)
    return low, engine.select(low, _sub(1.0, x), x)


@_in_double
def lgamma(x):
    """The logarithm of the absolute value of the gamma function."""
    low, z = _reflected(x)
    z = _sub(z, 1.0)
    terms = (_div(c, _add(z, float(i))) for i, c in enumerate(_LANCZOS[1:], 1))
    total = reduce(_add, terms, engine.full((), _LANCZOS[0], "float64"))
    t = _add(z, 7.5)
    right = _add(_sub(_mul(_add(z, 0.5), engine.unary("log", t)), t), engine.unary("log", _mul(total, math.sqrt(2 * math.pi))))
    # The sine of a whole number of half turns is exact: at the poles the result is infinite.
    part = _sub(x, engine.unary("floor", x))
    sine = engine.unary("abs", engine.unary("sin", _mul(engine.select(low, part, engine.full((), 0.5, "float64")), math.pi)))
    left = _sub(_sub(math.log(math.pi), engine.unary("log", sine)), right)
    return engine.select(low, left, right)


@_in_double
def digamma(x):
    """The derivative of `lgamma`."""
    low, z = _reflected(x)
    # Up to where the expansion holds, by psi(z) = psi(z + 1) - 1/z.
    below = reduce(_add, (_div(1.0, _add(z, float(i))) for i in range(8)))
    y = _add(z, 8.0)
    square = _div(1.0, _mul(y, y))
    series = reduce(lambda total, c: _add(_mul(total, square), c), reversed(_DIGAMMA[:-1]), engine.full((), _DIGAMMA[-1], "float64"))
    right = _sub(_add(_sub(engine.unary("log", y), _div(0.5, y)), _mul(series, square)), below)
    part = _sub(x, engine.unary("floor", x))
    angle = _mul(engine.select(low, part, engine.full((), 0.25, "float64")), math.pi)
    left = _sub(right, _div(math.pi, engine.unary("tan", angle)))
    found = engine.select(low, left, right)
    pole = engine.binary("logical_and", low, engine.binary("eq", part, 0.0))
    return engine.select(pole, engine.full((), math.nan, "float64"), found)


@_in_double
def erfinv(x):
    """The inverse of the error function: Winitzki's approximation, then Newton's steps."""
    size = engine.unary("abs", x)
    inside = engine.binary("lt", size, 1.0)
    z = engine.select(inside, x, engine.full((), 0.0, "float64"))
    # log(1 - z²) without losing what is near 1.
    tail = _add(engine.unary("log1p", z), engine.unary("log1p", engine.unary("neg", z)))
    head = _add(_mul(tail, 0.5), 2.0 / (math.pi * 0.147))
    root = _sub(engine.unary("sqrt", _sub(_mul(head, head), _div(tail, 0.147))), head)
    w = engine.stop_gradient(_mul(engine.unary("sign", z), engine.unary("sqrt", root)))
    for last in (False, False, True):
        slope = _mul(engine.unary("exp", engine.unary("neg", _mul(w, w))), 2.0 / math.sqrt(math.pi))
        w = _sub(w, _div(_sub(engine.unary("erf", w), z), slope))
        # The derivative of the last step by z is that of the inverse: 1/slope.
        w = w if last else engine.stop_gradient(w)
    ends = engine.select(engine.binary("eq", size, 1.0), _mul(engine.stop_gradient(x), math.inf), engine.full((), math.nan, "float64"))
    return engine.select(inside, w, ends)


def ndtri(x):
    """The inverse of the normal distribution's function."""
    y = engine.cast(x, "float64")
    return engine.cast(_mul(erfinv(_sub(_mul(y, 2.0), 1.0)), math.sqrt(2.0)), x.dtype)


def shift(x, y, left):
    """The bits of integers moved up or down, by as many places as they have at most; down keeps the sign."""
    by = engine.cast(engine.unary("round", engine.binary("pow", engine.full((), 2.0, "float64"), engine.cast(y, "float64"))), "int64")
    moved = engine.binary("mul" if left else "floor_div", engine.cast(x, "int64"), by)
    return engine.cast(moved, x.dtype)
