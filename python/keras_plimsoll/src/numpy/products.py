"""Products of matrices and more; and what is left."""

import builtins
import math as pymath

import numpy as np
from keras.src.backend import config
from keras.src.backend.common import standardize_dtype
from keras.src.backend.common.backend_utils import vectorize_impl

from plimsoll._types import as_dtype
from plimsoll.linalg import einsum_of

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import on_host
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy.types import axes_of
from keras_plimsoll.src.numpy.types import is_float
from keras_plimsoll.src.numpy.types import promoted
from keras_plimsoll.src.numpy.types import to_float
from keras_plimsoll.src.numpy.arithmetic import absolute
from keras_plimsoll.src.numpy.arithmetic import add
from keras_plimsoll.src.numpy.arithmetic import divide
from keras_plimsoll.src.numpy.arithmetic import equal
from keras_plimsoll.src.numpy.arithmetic import isnan
from keras_plimsoll.src.numpy.arithmetic import less_equal
from keras_plimsoll.src.numpy.arithmetic import logical_and
from keras_plimsoll.src.numpy.arithmetic import logical_or
from keras_plimsoll.src.numpy.arithmetic import multiply
from keras_plimsoll.src.numpy.arithmetic import sqrt
from keras_plimsoll.src.numpy.arithmetic import subtract
from keras_plimsoll.src.numpy.arithmetic import where
from keras_plimsoll.src.numpy.elements import clip
from keras_plimsoll.src.numpy.elements import isfinite
from keras_plimsoll.src.numpy.elements import widened
from keras_plimsoll.src.numpy.shape import atleast_2d
from keras_plimsoll.src.numpy.shape import broadcast_together
from keras_plimsoll.src.numpy.shape import expand_dims
from keras_plimsoll.src.numpy.shape import flip
from keras_plimsoll.src.numpy.shape import moveaxis
from keras_plimsoll.src.numpy.shape import ravel
from keras_plimsoll.src.numpy.shape import reshape
from keras_plimsoll.src.numpy.shape import split
from keras_plimsoll.src.numpy.shape import squeeze
from keras_plimsoll.src.numpy.shape import stack
from keras_plimsoll.src.numpy.shape import transpose
from keras_plimsoll.src.numpy.reduce import all
from keras_plimsoll.src.numpy.reduce import mean
from keras_plimsoll.src.numpy.reduce import sum
from keras_plimsoll.src.numpy.make import diagonal
from keras_plimsoll.src.numpy.make import zeros_like


def matmul(x1, x2):
    a, b = _factors(x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul takes at least one axis. Received: shapes {a.shape} and {b.shape}")
    left, right = a.ndim == 1, b.ndim == 1
    a = expand_dims(a, 0) if left else a
    b = expand_dims(b, -1) if right else b
    product = _product(a, b)
    if right:
        product = squeeze(product, -1)
    return squeeze(product, -1 if right else -2) if left else product


def _factors(*xs):
    """Tensors of one type; products of bytes with bytes are summed up in 32 bits."""
    xs = [convert_to_tensor(x) for x in xs]
    types = {x.dtype for x in xs}
    return [cast(x, "int32") for x in xs] if types in ({"int8"}, {"bool"}) else promoted(*xs)


def _product(a, b):
    """The matrix product; of integers through a float type that holds them."""
    if is_float(a):
        return engine.matmul(a, b)
    exact = engine.matmul(cast(a, "float64"), cast(b, "float64"))
    return cast(exact, a.dtype)


def dot(x1, x2):
    a, b = _factors(x1, x2)
    if a.ndim == 0 or b.ndim == 0:
        return multiply(a, b)
    if b.ndim == 1:
        return _contracted(a, b, [-1], [0])
    return _contracted(a, b, [-1], [-2])


def tensordot(x1, x2, axes=2):
    a, b = _factors(x1, x2)
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = (list(side) if isinstance(side, (list, tuple)) else [side] for side in axes)
    return _contracted(a, b, left, right)


def _contracted(a, b, left, right):
    """The product of two tensors of one type, summed over these axes of either."""
    left, right = axes_of(left, a.ndim), axes_of(right, b.ndim)
    free_a = [i for i in range(a.ndim) if i not in left]
    free_b = [i for i in range(b.ndim) if i not in right]
    inner_ = pymath.prod(a.shape[i] for i in left)
    out = [a.shape[i] for i in free_a] + [b.shape[i] for i in free_b]
    a = engine.reshape(engine.transpose(a, free_a + left), (pymath.prod(a.shape[i] for i in free_a), inner_))
    b = engine.reshape(engine.transpose(b, right + free_b), (inner_, pymath.prod(b.shape[i] for i in free_b)))
    return engine.reshape(_product(a, b), out)


def inner(x1, x2):
    a, b = _factors(x1, x2)
    return multiply(a, b) if a.ndim == 0 or b.ndim == 0 else _contracted(a, b, [-1], [-1])


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
    return moveaxis(stack(broadcast_together(first, second, last), axis=-1), -1, axisc)


def einsum(subscripts, *operands, **kwargs):
    operands = _factors(*operands)
    dtype = operands[0].dtype
    if not is_float(operands[0]):
        operands = [cast(x, "float64") for x in operands]
    return cast(einsum_of(_explicit(subscripts, operands), operands), dtype)


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
    rows = widened(atleast_2d(x))
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
    before, after = as_dtype(x.dtype), as_dtype(dtype)
    if not x.ndim:
        if before.size != after.size:
            raise ValueError(f"a scalar of type {x.dtype} cannot be seen as {dtype}, which has another size")
        return engine.reshape(view(engine.reshape(x, (1,)), dtype), ())
    last = x.shape[-1] * before.size // after.size
    (result,) = on_host(lambda v: v.view(after.as_numpy_dtype), [x], [((*x.shape[:-1], last), dtype)])
    return result


def slogdet(x):
    x = to_float(x)
    sign_, log_ = on_host(
        lambda v: tuple(np.linalg.slogdet(v)), [x], [(x.shape[:-2], x.dtype), (x.shape[:-2], x.dtype)]
    )
    return sign_, log_
