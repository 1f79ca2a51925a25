"""`keras.ops.linalg`. Norms are composed from primitives; decompositions run on the host, in LAPACK by NumPy."""

import builtins

import numpy as np

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import numpy as knp
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import on_host


def _matrices(a):
    return knp.to_float(a)


def _work(function):
    """`function` over arrays in a precision LAPACK has."""

    def wider(*arrays):
        return function(*[v.astype("float32") if v.dtype.itemsize < 4 else v for v in arrays])

    return wider


def cholesky(a, upper=False):
    a = _matrices(a)

    def factor(v):
        lower = np.linalg.cholesky(v)
        return np.swapaxes(lower, -1, -2) if upper else lower

    return on_host(_work(factor), [a], [(a.shape, a.dtype)])[0]


def cholesky_inverse(a, upper=False):
    a = _matrices(a)

    def inverse(v):
        root = np.linalg.inv(v)
        other = np.swapaxes(root, -1, -2)
        return root @ other if upper else other @ root

    return on_host(_work(inverse), [a], [(a.shape, a.dtype)])[0]


def det(a):
    a = _matrices(a)
    return on_host(_work(np.linalg.det), [a], [(a.shape[:-2], a.dtype)])[0]


def eig(a):
    raise NotImplementedError("eigenvalues of a general matrix are complex; the plimsoll backend has real numbers only")


def eigh(a):
    a = _matrices(a)
    return tuple(on_host(_work(lambda v: tuple(np.linalg.eigh(v))), [a], [(a.shape[:-1], a.dtype), (a.shape, a.dtype)]))


def inv(a):
    a = _matrices(a)
    return on_host(_work(np.linalg.inv), [a], [(a.shape, a.dtype)])[0]


def lu_factor(a):
    a = _matrices(a)
    count = builtins.min(a.shape[-2:])
    return tuple(on_host(_work(_lu), [a], [(a.shape, a.dtype), ((*a.shape[:-2], count), "int32")]))


def _lu(a):
    """Gaussian elimination with partial pivoting on each matrix; both factors in one, with the rows exchanged."""
    lu = np.array(a)
    rows, columns = lu.shape[-2:]
    flat = lu.reshape(-1, rows, columns)
    pivots = np.zeros((flat.shape[0], builtins.min(rows, columns)), dtype="int32")
    for m, swaps in zip(flat, pivots):
        for k in range(swaps.shape[0]):
            best = k + int(np.argmax(np.abs(m[k:, k])))
            swaps[k] = best
            m[[k, best]] = m[[best, k]]
            if m[k, k] != 0:
                m[k + 1 :, k] /= m[k, k]
                m[k + 1 :, k + 1 :] -= np.outer(m[k + 1 :, k], m[k, k + 1 :])
    return flat.reshape(lu.shape), pivots.reshape(*lu.shape[:-2], -1)


def norm(x, ord=None, axis=None, keepdims=False):
    x = convert_to_tensor(x)
    x = x if knp.is_float(x) else knp.to_float(x)
    if axis is None and ord is None:
        flat = knp.sqrt(knp.sum(knp.square(x)))
        return knp.reshape(flat, [1] * x.ndim) if keepdims else flat
    axes = knp.axes_of(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, ord, axes, keepdims)
    raise ValueError(f"a norm is taken over one or two axes. Received: axis={axis} for shape {x.shape}")


def _vector_norm(x, ord, axis, keepdims):
    size = knp.absolute(x)
    if ord is None or ord == 2:
        return knp.sqrt(knp.sum(knp.square(x), axis=axis, keepdims=keepdims))
    if ord == np.inf:
        return knp.max(size, axis=axis, keepdims=keepdims)
    if ord == -np.inf:
        return knp.min(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return knp.sum(cast(knp.not_equal(x, 0), x.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return knp.sum(size, axis=axis, keepdims=keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid `ord` argument for vector norm. Received: ord={ord}")
    return knp.power(knp.sum(knp.power(size, float(ord)), axis=axis, keepdims=keepdims), 1.0 / ord)


def _matrix_norm(x, ord, axes, keepdims):
    rows, columns = axes
    if ord in (None, "fro"):
        return knp.sqrt(knp.sum(knp.square(x), axis=axes, keepdims=keepdims))
    largest = {1: (rows, columns), -1: (rows, columns), np.inf: (columns, rows), -np.inf: (columns, rows)}
    if not isinstance(ord, str) and ord in largest:
        along, over = largest[ord]
        sums = knp.sum(knp.absolute(x), axis=along, keepdims=True)
        result = (knp.max if ord > 0 else knp.min)(sums, axis=over, keepdims=True)
    elif ord in (2, -2, "nuc"):
        values = svd(knp.moveaxis(x, axes, (-2, -1)), compute_uv=False)
        pick = {2: knp.max, -2: knp.min, "nuc": knp.sum}[ord]
        result = knp.expand_dims(pick(values, axis=-1), sorted(axes))
    else:
        raise ValueError(f"Invalid `ord` argument for matrix norm. Received: ord={ord}")
    return result if keepdims else knp.squeeze(result, axis=axes)


def qr(x, mode="reduced"):
    if mode not in {"reduced", "complete"}:
        raise ValueError(
            f"`mode` argument value not supported. Expected one of {{'reduced', 'complete'}}. Received: mode={mode}"
        )
    x = _matrices(x)
    *lead, rows, columns = x.shape
    inner = builtins.min(rows, columns) if mode == "reduced" else rows
    outputs = [((*lead, rows, inner), x.dtype), ((*lead, inner, columns), x.dtype)]
    return tuple(on_host(_work(lambda v: tuple(np.linalg.qr(v, mode=mode))), [x], outputs))


def solve(a, b):
    a, b = knp.promoted(convert_to_tensor(a), convert_to_tensor(b), also=(float,))
    vector = b.ndim == a.ndim - 1

    def solution(m, v):
        return np.linalg.solve(m, v[..., None])[..., 0] if vector else np.linalg.solve(m, v)

    return on_host(_work(solution), [a, b], [(b.shape, b.dtype)])[0]


def solve_triangular(a, b, lower=False):
    a = knp.to_float(a)
    return solve(knp.tril(a) if lower else knp.triu(a), b)


def svd(x, full_matrices=True, compute_uv=True):
    x = _matrices(x)
    *lead, rows, columns = x.shape
    inner = builtins.min(rows, columns)
    if not compute_uv:
        return on_host(_work(lambda v: np.linalg.svd(v, compute_uv=False)), [x], [((*lead, inner), x.dtype)])[0]
    left = (*lead, rows, rows if full_matrices else inner)
    right = (*lead, columns if full_matrices else inner, columns)
    outputs = [(left, x.dtype), ((*lead, inner), x.dtype), (right, x.dtype)]
    return tuple(on_host(_work(lambda v: tuple(np.linalg.svd(v, full_matrices=full_matrices))), [x], outputs))


def lstsq(a, b, rcond=None):
    a, b = knp.promoted(convert_to_tensor(a), convert_to_tensor(b), also=(float,))
    outputs = [((a.shape[1], *b.shape[1:]), a.dtype)]
    return on_host(_work(lambda m, v: np.linalg.lstsq(m, v, rcond=rcond)[0]), [a, b], outputs)[0]


def matrix_rank(x, tol=None):
    x = _matrices(x)
    if x.ndim < 2:
        raise ValueError(f"Expected input to have rank >= 2. Received input with shape {x.shape}.")
    return on_host(_work(lambda v: np.linalg.matrix_rank(v, tol=tol)), [x], [(x.shape[:-2], "int32")])[0]


def pinv(x, rcond=None):
    x = _matrices(x)
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    inverse = lambda v: np.linalg.pinv(v) if rcond is None else np.linalg.pinv(v, rcond=rcond)
    return on_host(_work(inverse), [x], [(shape, x.dtype)])[0]


def jvp(fun, primals, tangents, has_aux=False):
    """The derivative along `tangents`, as the gradient of a gradient."""
    from keras.src import tree

    from keras_plimsoll.src import record

    primals = [convert_to_tensor(p) for p in primals]
    tangents = [convert_to_tensor(t, p.dtype) for p, t in zip(primals, tangents)]
    with record.tape():
        outputs = fun(*primals)
        outputs, aux = outputs if has_aux else (outputs, None)
        flat = [convert_to_tensor(y) for y in tree.flatten(outputs)]
        # The gradient is linear in what arrives; its own gradient with respect to that is the derivative.
        arriving = [engine.full(y.shape, 0, y.dtype) for y in flat]
        pulled = engine.gradients(flat, primals, arriving)
        pairs = [(g, t) for g, t in zip(pulled, tangents) if g is not None]
        pushed = engine.gradients([g for g, _ in pairs], arriving, [t for _, t in pairs])
    pushed = [knp.zeros_like(y) if p is None else p for y, p in zip(flat, pushed)]
    result = (outputs, tree.pack_sequence_as(outputs, pushed))
    return (*result, aux) if has_aux else result
