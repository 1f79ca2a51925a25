"""`tf.linalg`: products of matrices, norms, and decompositions on the host."""

import numpy as np

from plimsoll import _engine as engine
from plimsoll._array import eye as eye
from plimsoll._array import linear_to_diag
from plimsoll._core import Tensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll._core import pair
from plimsoll._core import raw_dtype
from plimsoll._types import as_dtype
from plimsoll.errors import InvalidArgumentError
from plimsoll.math import axes_of
from plimsoll.math import l2_normalize as l2_normalize


@op
def matmul(a, b, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False, a_is_sparse=False, b_is_sparse=False, output_type=None, name=None):
    """The product of matrices along the last two axes; those before broadcast."""
    a, b = pair(a, b, "MatMul")
    a, b = convert_to_tensor(a), convert_to_tensor(b)
    if a.ndim < 2 or b.ndim < 2:
        raise InvalidArgumentError(None, None, f"In[0] and In[1] has different ndims or fewer than 2: {a.shape} vs. {b.shape} [Op:MatMul]")
    ta, tb = transpose_a or adjoint_a, transpose_b or adjoint_b
    inner_a, inner_b = a.shape[-2 if ta else -1], b.shape[-1 if tb else -2]
    if inner_a != inner_b:
        raise InvalidArgumentError(None, None, f"Matrix size-incompatible: In[0]: {a.shape}, In[1]: {b.shape} [Op:MatMul]")
    product = engine.matmul(a, b, ta, tb)
    return product if output_type is None else engine.cast(product, as_dtype(output_type).name)


@op
def matvec(a, b, transpose_a=False, name=None):
    """The product of matrices and vectors."""
    a, b = pair(a, b, "MatVec")
    product = engine.matmul(a, engine.reshape(b, [*b.shape, 1]), transpose_a, False)
    return engine.reshape(product, list(product.shape[:-1]))


@op
def einsum(equation, *inputs, name=None):
    """An Einstein sum; three and more tensors are multiplied two at a time."""
    return einsum_of(equation.replace(" ", ""), [convert_to_tensor(x) for x in inputs])


def einsum_of(equation, xs):
    """An Einstein sum of tensors of one type, two at a time; with more than two the equation names its output."""
    left, arrow, right = equation.partition("->")
    if len(xs) > 2 and not arrow:
        letters = left.replace(",", "")
        right = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    terms = left.split(",")
    while len(xs) > 2:
        first, second, rest = terms[0], terms[1], terms[2:]
        later = set("".join(rest) + right)
        kept = "".join(c for c in dict.fromkeys(first + second) if c in later)
        xs = [engine.einsum(f"{first},{second}->{kept}", xs[:2]), *xs[2:]]
        terms = [kept, *rest]
    return engine.einsum(f"{','.join(terms)}->{right}" if arrow or right else equation, xs)


@op
def tensordot(a, b, axes, name=None):
    """Products summed over axes of both."""
    a, b = pair(a, b, "Tensordot")
    if isinstance(axes, (Tensor, np.ndarray)):
        axes = np.asarray(axes).tolist()
    if isinstance(axes, int):
        of_a, of_b = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        of_a, of_b = ([v] if isinstance(v, int) else list(v) for v in axes)
    of_a, of_b = [i % a.ndim for i in of_a], [i % b.ndim for i in of_b]
    free_a = [i for i in range(a.ndim) if i not in of_a]
    free_b = [i for i in range(b.ndim) if i not in of_b]
    size = int(np.prod([a.shape[i] for i in of_a]))
    left = engine.reshape(engine.transpose(a, free_a + of_a), [-1 if size else 0, size])
    right = engine.reshape(engine.transpose(b, of_b + free_b), [size, -1 if size else 0])
    return engine.reshape(engine.matmul(left, right), [*(a.shape[i] for i in free_a), *(b.shape[i] for i in free_b)])


@op
def norm(tensor, ord="euclidean", axis=None, keepdims=None, name=None):
    """The norm of vectors, along one axis or all."""
    x, keep, axes = convert_to_tensor(tensor), bool(keepdims), axes_of(axis)
    if ord in ("euclidean", "fro", 2):
        return engine.unary("sqrt", engine.reduce("sum", engine.unary("square", x), axes, keep))
    size = engine.unary("abs", x)
    if ord == 1:
        return engine.reduce("sum", size, axes, keep)
    if ord in (np.inf, "inf"):
        return engine.reduce("max", size, axes, keep)
    total = engine.reduce("sum", engine.binary("pow", size, float(ord)), axes, keep)
    return engine.binary("pow", total, 1.0 / float(ord))


@op
def normalize(tensor, ord="euclidean", axis=None, name=None):
    """A tensor over its norm, and the norm."""
    x = convert_to_tensor(tensor)
    size = norm(x, ord, axis, keepdims=True)
    return engine.binary("div", x, size), size


@op
def diag(diagonal, name="diag", k=0, num_rows=-1, num_cols=-1, padding_value=0, align="RIGHT_LEFT"):
    """Vectors as diagonals of matrices."""
    if k == 0 and num_rows == -1 and num_cols == -1 and padding_value == 0:
        return linear_to_diag(diagonal)
    raise NotImplementedError("linalg.diag: only the main diagonal of square matrices")


@op
def diag_part(input, name="diag_part", k=0, padding_value=0, align="RIGHT_LEFT"):
    """The diagonals of matrices."""
    x = convert_to_tensor(input)
    rows, columns = x.shape[-2:]
    n = max(min(rows + min(k, 0), columns - max(k, 0)), 0)
    places = np.arange(n) * columns + np.arange(n) + max(k, 0) + max(-k, 0) * columns
    return engine.gather(engine.reshape(x, [*x.shape[:-2], rows * columns]), engine.tensor(places.astype(np.int32)), -1)


@op
def set_diag(input, diagonal, name="set_diag", k=0, align="RIGHT_LEFT"):
    """Matrices with other diagonals."""
    x, diagonal = convert_to_tensor(input), convert_to_tensor(diagonal)
    rows, columns = x.shape[-2:]
    same = engine.binary("eq", engine.iota([rows, columns], 0, "int32"), engine.iota([rows, columns], 1, "int32"))
    spread = engine.reshape(diagonal, [*diagonal.shape, 1] if rows <= columns else [*diagonal.shape[:-1], 1, diagonal.shape[-1]])
    return engine.select(same, engine.broadcast_to(spread, list(x.shape)), x)


@op
def trace(x, name=None):
    """The sum of the diagonal."""
    return engine.reduce("sum", diag_part(x), -1, False)


@op
def band_part(input, num_lower, num_upper, name=None):
    """Matrices with everything outside a band set to 0; -1 keeps a whole triangle."""
    x = convert_to_tensor(input)
    rows, columns = x.shape[-2:]
    i, j = engine.iota([rows, columns], 0, "int32"), engine.iota([rows, columns], 1, "int32")
    low, high = int(num_lower), int(num_upper)
    keep = engine.full([rows, columns], True, "bool")
    if low >= 0:
        keep = engine.binary("logical_and", keep, engine.binary("le", engine.binary("sub", i, j), low))
    if high >= 0:
        keep = engine.binary("logical_and", keep, engine.binary("le", engine.binary("sub", j, i), high))
    return engine.select(keep, x, engine.full((), 0, raw_dtype(x)))


@op
def matrix_transpose(a, name="matrix_transpose", conjugate=False):
    """The last two axes exchanged."""
    x = convert_to_tensor(a)
    return engine.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


adjoint = matrix_transpose


@op
def cross(a, b, name=None):
    """The cross product of vectors of three."""
    a, b = pair(a, b, "Cross")
    part = lambda x, i: engine.reshape(engine.slice(x, [0] * (x.ndim - 1) + [i], [*x.shape[:-1], 1]), list(x.shape[:-1]))
    of = lambda i, j: engine.binary("sub", engine.binary("mul", part(a, i), part(b, j)), engine.binary("mul", part(a, j), part(b, i)))
    parts = [of(1, 2), of(2, 0), of(0, 1)]
    return engine.concat([engine.reshape(p, [*p.shape, 1]) for p in parts], -1)


def _on_host(name, function, doc):
    def apply(input, *args, name=None, **options):
        x = convert_to_tensor(input)
        result = function(np.asarray(x.numpy()), *args, **options)
        tensors = [engine.tensor(np.asarray(part)) for part in result] if isinstance(result, tuple) else engine.tensor(np.asarray(result))
        return tuple(tensors) if isinstance(result, tuple) else tensors

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = doc + " On the host; no gradient flows."
    return op(apply)


def _svd(x, full_matrices=False, compute_uv=True):
    if not compute_uv:
        return np.linalg.svd(x, compute_uv=False)
    u, s, v = np.linalg.svd(x, full_matrices=full_matrices)
    return s, u, np.swapaxes(v, -1, -2)


def _solve(x, rhs, adjoint=False):
    x = np.swapaxes(x, -1, -2) if adjoint else x
    return np.linalg.solve(x, np.asarray(convert_to_tensor(rhs).numpy()))


def _qr(x, full_matrices=False):
    return tuple(np.linalg.qr(x, mode="complete" if full_matrices else "reduced"))


inv = _on_host("inv", np.linalg.inv, "The inverse of matrices.")
pinv = _on_host("pinv", np.linalg.pinv, "The pseudo-inverse of matrices.")
det = _on_host("det", np.linalg.det, "The determinant of matrices.")
slogdet = _on_host("slogdet", lambda x: tuple(np.linalg.slogdet(x)), "Sign and logarithm of the determinant.")
logdet = _on_host("logdet", lambda x: np.linalg.slogdet(x)[1], "The logarithm of the determinant.")
cholesky = _on_host("cholesky", np.linalg.cholesky, "The lower triangle whose product with its transpose is the matrix.")
qr = _on_host("qr", _qr, "An orthogonal matrix and an upper triangle.")
svd = _on_host("svd", _svd, "Singular values, left and right vectors.")
eigh = _on_host("eigh", lambda x: tuple(np.linalg.eigh(x)), "Eigenvalues and vectors of symmetric matrices.")
eigvalsh = _on_host("eigvalsh", np.linalg.eigvalsh, "Eigenvalues of symmetric matrices.")
solve = _on_host("solve", _solve, "The solution of linear equations.")
lstsq = _on_host("lstsq", lambda x, rhs, **_: np.linalg.lstsq(x, np.asarray(convert_to_tensor(rhs).numpy()), rcond=None)[0], "The solution with the least squares.")
expm = _on_host("expm", lambda x: _expm(x), "The exponential of matrices.")


def _expm(x):
    scale = max(0, int(np.ceil(np.log2(max(np.abs(x).sum(-1).max(), 1e-300)))) + 4)
    small, term = x.astype(np.float64) / 2.0**scale, np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    total = term
    for i in range(1, 20):
        term = term @ small / i
        total = total + term
    for _ in range(scale):
        total = total @ total
    return total.astype(x.dtype)


@op
def global_norm(t_list, name=None):
    """The root of the sum of squares of several tensors; those that are None count for nothing."""
    total = None
    for t in t_list:
        if t is not None:
            part = engine.reduce("sum", engine.unary("square", convert_to_tensor(t)), None, False)
            total = part if total is None else engine.binary("add", total, part)
    return engine.unary("sqrt", total)


@op
def clip_by_global_norm(t_list, clip_norm, use_norm=None, name=None):
    """Tensors scaled together so that their norm is at most `clip_norm`, and the norm that they had."""
    size = global_norm(t_list) if use_norm is None else convert_to_tensor(use_norm)
    limit = convert_to_tensor(clip_norm, dtype_hint=size.dtype)
    scale = engine.binary("mul", limit, engine.binary("min", engine.unary("reciprocal", size), engine.unary("reciprocal", limit)))
    clipped = [None if t is None else engine.binary("mul", convert_to_tensor(t), engine.cast(scale, raw_dtype(convert_to_tensor(t)))) for t in t_list]
    return clipped, size


@op
def clip_by_norm(t, clip_norm, axes=None, name=None):
    """A tensor scaled so that its norm is at most `clip_norm`."""
    t = convert_to_tensor(t)
    total = engine.reduce("sum", engine.unary("square", t), axes_of(axes), True)
    there = engine.binary("gt", total, 0.0)
    size = engine.unary("sqrt", engine.select(there, total, engine.full((), 1, raw_dtype(t))))
    size = engine.select(there, size, total)
    return engine.binary("div", engine.binary("mul", t, float(clip_norm)), engine.binary("max", size, float(clip_norm)))
