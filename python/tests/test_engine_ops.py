"""Operations of the engine, with NumPy as the judge."""

import numpy as np
import pytest

from plimsoll import _engine as e

rng = np.random.default_rng(0)
X = rng.normal(size=(3, 4)).astype("float32")
P = np.abs(X) + 0.1


def close(tensor, expected, tol=1e-5):
    got = tensor.numpy()
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)


UNARY = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": np.square, "exp": np.exp, "expm1": np.expm1,
    "exp2": np.exp2, "sin": np.sin, "cos": np.cos, "tan": np.tan, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "floor": np.floor, "ceil": np.ceil, "round": np.round, "trunc": np.trunc,
    "is_nan": np.isnan, "is_finite": np.isfinite, "is_inf": np.isinf,
}  # fmt: skip
POSITIVE = {
    "sqrt": np.sqrt, "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10,
    "reciprocal": np.reciprocal, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    close(e.unary(name, X), UNARY[name](X))


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_of_positive_numbers(name):
    close(e.unary(name, P), POSITIVE[name](P))


def test_inverse_functions_keep_their_digits_near_zero():
    x = np.array([1e-6, -1e-6, 0.5], "float32")
    close(e.unary("asinh", x), np.arcsinh(x), 1e-7)
    close(e.unary("atanh", x), np.arctanh(x), 1e-7)
    close(e.unary("acosh", 1 + np.abs(x)), np.arccosh(1 + np.abs(x)), 1e-3)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "max", "min", "eq", "ne", "lt", "le", "gt", "ge", "atan2", "mod"])
def test_binary_broadcasts(name):
    judge = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "atan2": np.arctan2, "mod": np.mod,
    }[name]  # fmt: skip
    b = rng.normal(size=(4,)).astype("float32")
    close(e.binary(name, X, b), judge(X, b))
    close(e.binary(name, X, 0.5), judge(X, np.float32(0.5)))


def test_integers_and_bools():
    a, b = np.array([7, -7, 5], "int32"), np.array([3, 3, -2], "int32")
    close(e.binary("floor_div", a, b), a // b)
    close(e.binary("mod", a, b), a % b)
    close(e.binary("bit_and", a, b), a & b)
    p, q = np.array([True, True, False]), np.array([True, False, False])
    close(e.binary("logical_xor", p, q), p ^ q)
    close(e.unary("logical_not", p), ~p)
    close(e.select(p, a, b), np.where(p, a, b))
    assert e.reduce("any", p).item() is True and e.reduce("all", p).item() is False


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("axes", [None, 0, -1, (0, 1), (1,)])
@pytest.mark.parametrize("keep", [False, True])
def test_reduce(kind, axes, keep):
    close(e.reduce(kind, X, axes, keep), getattr(np, kind)(X, axis=axes, keepdims=keep))


def test_shapes():
    close(e.reshape(X, [2, -1]), X.reshape(2, -1))
    close(e.transpose(X), X.T)
    close(e.broadcast_to(X, [2, 3, 4]), np.broadcast_to(X, (2, 3, 4)))
    close(e.slice(X, [1, 0], [2, 2], [1, 2]), X[1:3, 0:3:2])
    close(e.pad(X, [1, 0], [0, 2]), np.pad(X, ((1, 0), (0, 2))))
    close(e.pad(X, [1, 0], [0, 2], 7.0), np.pad(X, ((1, 0), (0, 2)), constant_values=7))
    close(e.pad(X > 0, [1, 0], [0, 2], 1.0), np.pad(X > 0, ((1, 0), (0, 2)), constant_values=True))
    close(e.concat([X, X], -1), np.concatenate([X, X], -1))
    close(e.flip(X, 1), X[:, ::-1])
    close(e.tile(X, [2, 3]), np.tile(X, (2, 3)))
    close(e.iota([2, 3], 1, "int64"), np.broadcast_to(np.arange(3), (2, 3)))
    close(e.full([2], 3, "uint8"), [3, 3])


def test_by_index():
    i = np.array([[2, 0], [1, 1]])
    close(e.gather(X, i, 0), X[i])
    close(e.gather(X, i, -1), np.take(X, i, -1))
    along = np.array([[3, 0], [1, 1], [2, 2]])
    close(e.take_along(X, along, 1), np.take_along_axis(X, along, 1))
    expected = np.zeros((5, 4), "float32")
    np.add.at(expected, [4, 0, 4], X)
    close(e.scatter_add(np.array([4, 0, 4]), X, 0, 5), expected)
    close(e.one_hot(np.array([1, 0]), 3), np.eye(3)[[1, 0]])
    values, places = e.sort(X, 1, True)
    close(values, -np.sort(-X, 1))
    close(places, np.argsort(-X, 1, kind="stable"))
    close(e.top_k(X, 2)[0], -np.sort(-X, 1)[:, :2])
    close(e.argmax(X, 0), X.argmax(0))
    close(e.argmin(X, -1), X.argmin(-1))
    assert e.argmax(X, 0).dtype == "int64"
    close(e.cumsum(X, 1), X.cumsum(1))
    close(e.cumprod(X, 0), X.cumprod(0))


@pytest.mark.parametrize(
    "a,b",
    [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)),
     ((5, 1, 3, 4), (2, 4, 6)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3))],
)  # fmt: skip
def test_matmul_is_numpys(a, b):
    a, b = rng.normal(size=a).astype("float32"), rng.normal(size=b).astype("float32")
    close(e.matmul(a, b), a @ b, 1e-4)


def test_products():
    a, b = rng.normal(size=(2, 3, 4)).astype("float32"), rng.normal(size=(2, 5, 4)).astype("float32")
    close(e.matmul(a, b, transpose_b=True), a @ b.transpose(0, 2, 1), 1e-4)
    close(e.einsum("bik,bjk->bij", [a, b]), np.einsum("bik,bjk->bij", a, b), 1e-4)
    soft = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    close(e.softmax(X), soft)
    close(e.log_softmax(X), np.log(soft))


def test_convolution_and_pooling():
    x = rng.normal(size=(2, 6, 5, 3)).astype("float32")
    w = rng.normal(size=(3, 2, 3, 4)).astype("float32")
    y = e.conv(x, w, padding="valid")
    naive = np.zeros((2, 4, 4, 4), "float32")
    for i in range(4):
        for j in range(4):
            naive[:, i, j] = np.einsum("bhwc,hwco->bo", x[:, i : i + 3, j : j + 2], w)
    close(y, naive, 1e-4)
    assert e.conv(x, w, strides=[2, 2], padding="same").shape == (2, 3, 3, 4)
    assert e.conv_transpose(y, w).shape == x.shape
    pools = x[:, :6, :4].reshape(2, 3, 2, 2, 2, 3)
    close(e.max_pool(x, [2, 2]), pools.max((2, 4)))
    close(e.avg_pool(x, [2, 2]), pools.mean((2, 4)))


def test_losses_and_norms():
    labels = np.array([1, 0, 3])
    logs = np.log(np.exp(X) / np.exp(X).sum(-1, keepdims=True))
    close(e.sparse_cross_entropy(X, labels), -logs[np.arange(3), labels])
    close(e.cross_entropy(X, np.eye(4, dtype="float32")[labels]), -logs[np.arange(3), labels])
    normed = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-3)
    close(e.layer_norm(X), normed)
    scale = rng.normal(size=4).astype("float32")
    close(e.layer_norm(X, offset=scale), normed + scale)
    y, mean, variance = e.batch_norm(X, scale)
    close(mean, X.mean(0))
    close(variance, X.var(0))
    close(y, scale * (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-3))


def test_attention():
    q, k, v = (rng.normal(size=(2, 5, 3, 4)).astype("float32") for _ in range(3))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / 2
    scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    close(e.attention(q, k, v, causal=True), np.einsum("bhqk,bkhd->bqhd", p, v), 1e-4)


def test_recurrence():
    x, u = rng.normal(size=(2, 3, 4)).astype("float32"), rng.normal(size=(4, 4)).astype("float32")
    h, states = np.zeros((2, 4), "float32"), []
    for t in range(3):
        h = np.tanh(x[:, t] + h @ u)
        states.append(h)
    y, last = e.recurrence("simple", x, u)
    close(y, np.stack(states, 1))
    close(last[0], h)


def test_random_numbers_are_a_function_of_the_key():
    key = np.array([1, 2])
    first = e.random(key, "normal", [1000], "float32").numpy().copy()
    e.tensor(X).numpy()
    assert (e.random(key, "normal", [1000], "float32").numpy() == first).all()
    assert (e.random(np.array([1, 3]), "normal", [1000], "float32").numpy() != first).any()
    assert abs(first.mean()) < 0.15 and abs(first.std() - 1) < 0.15
    uniform = e.random(key, "uniform", [1000], "float64").numpy()
    assert 0 <= uniform.min() and uniform.max() < 1


@pytest.mark.parametrize("dtype", e.dtypes())
def test_every_type_goes_in_and_out(dtype):
    array = np.array([[1, 0], [1, 1]])
    if dtype == "bfloat16":
        array = array.astype(pytest.importorskip("ml_dtypes").bfloat16)
    else:
        array = array.astype(dtype)
    tensor = e.tensor(array)
    assert tensor.dtype == dtype and tensor.numpy().dtype == array.dtype
    assert (tensor.numpy() == array).all()
    assert (e.cast(tensor, "float32").numpy() == array.astype("float32")).all()
    assert e.tensor(array[0, 0]).item() == 1


def test_python_numbers():
    assert e.tensor(1.5).dtype == "float32" and e.tensor(3).dtype == "int32" and e.tensor(True).dtype == "bool"
    assert e.tensor(2**40).dtype == "int64" and e.tensor(2**40).item() == 2**40
    assert e.tensor(2**60 + 1).item() == 2**60 + 1
    assert e.tensor([1, 2]).dtype == "int32" and e.tensor([1.0]).dtype == "float32"
    assert e.tensor(np.float64(2)).dtype == "float64" and e.tensor([]).shape == (0,)
    assert e.tensor(np.float32(2)).shape == () and e.tensor([[2.0]]).shape == (1, 1)
    assert e.tensor(3, "float64").item() == 3.0
    assert float(e.tensor(2.0)) == 2.0 and int(e.tensor(2.9)) == 2 and bool(e.tensor(0.0)) is False
    assert list(range(5))[e.tensor(3)] == 3


def test_errors_come_at_once():
    with pytest.raises(ValueError, match="broadcast"):
        e.binary("add", X, np.ones(3, "float32"))
    with pytest.raises(ValueError, match="types differ"):
        e.binary("add", X, np.ones(4, "int32"))
    with pytest.raises(ValueError, match="axis 2"):
        e.reduce("sum", X, 2)
    with pytest.raises(TypeError, match="no type"):
        e.cast(X, "complex64")
    with pytest.raises(ValueError, match="reshaped"):
        e.reshape(X, [5])
    with pytest.raises(ValueError, match="9"):
        e.gather(X, np.array([9]))
    # What has still to be computed is wrong when it is looked at.
    bad = e.gather(X, e.binary("add", np.array([8]), np.array([1])))
    with pytest.raises(ValueError, match="9"):
        bad.numpy()
    del bad
    close(e.tensor(X) + 1, X + 1)
