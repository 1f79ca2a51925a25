"""The record: what is computed when, variables, tapes, traces."""

import gc

import numpy as np
import pytest

from plimsoll import _engine as e

X = np.arange(6, dtype="float32").reshape(2, 3)


def test_nothing_is_computed_until_somebody_looks():
    y = e.tensor(X) * 2 + 1
    z = y - 1
    assert not y.is_known and not z.is_known
    assert (z.numpy() == X * 2).all()
    assert y.is_known and (y.numpy() == X * 2 + 1).all()


def test_operators():
    t = e.tensor(X)
    assert ((1 - t).numpy() == 1 - X).all() and ((t / 2).numpy() == X / 2).all()
    assert ((t**2).numpy() == X**2).all() and ((-t).numpy() == -X).all()
    assert ((t @ t.numpy().T).numpy() == X @ X.T).all()
    assert ((t > 2).numpy() == (X > 2)).all() and ((t == t).numpy()).all()
    assert len({t, t}) == 1


def test_methods_can_be_replaced_and_attributes_set():
    t = e.tensor(X)
    t.mask = 1
    assert t.mask == 1
    e.Tensor.T = property(lambda self: e.transpose(self))
    assert t.T.shape == (3, 2)
    del e.Tensor.T


def test_memory_is_shared_and_read_only():
    a = e.tensor(X).numpy()
    assert not a.flags.writeable
    with pytest.raises(ValueError):
        a[0, 0] = 1
    source = X.copy()
    t = e.tensor(source)
    source[:] = 0
    assert (t.numpy() == X).all()
    a = (e.tensor(X) + 1).numpy()
    gc.collect()
    assert (a == X + 1).all()


def test_variables_change_in_order():
    v = e.Variable(X, name="v")
    old = v.value()
    twice = v.value() * 2
    new = v.assign(v.value() + 1)
    after = v.value() * 2
    both = old + after
    assert (both.numpy() == X + (X + 1) * 2).all()
    assert (old.numpy() == X).all() and (new.numpy() == X + 1).all() and (twice.numpy() == X * 2).all()
    v.assign_add(1)
    v.assign_sub(e.tensor(X))
    assert (v.numpy() == 2).all()
    v.assign(0)
    assert (v.numpy() == 0).all()
    with pytest.raises(ValueError):
        v.assign(np.zeros((3, 3), "float32"))


def test_variables_change_places():
    a, b = e.Variable(np.zeros(3, "float32")), e.Variable(np.ones(3, "float32"))
    x, y = a.value(), b.value()
    a.assign(y)
    b.assign(x)
    del x, y
    assert (a.numpy() == 1).all() and (b.numpy() == 0).all()


def test_gradients():
    x = e.tensor(X)
    y = e.reduce("sum", x * x * 3)
    (g,) = e.gradients([y], [x])
    assert (g.numpy() == 6 * X).all()
    x, unused = e.tensor(X), e.tensor(X)
    assert e.gradients([x * 2], [unused]) == [None]
    x = e.tensor(X)
    (g,) = e.gradients([x * 2], [x], [X])
    assert (g.numpy() == 2 * X).all()


def test_gradients_of_gradients():
    x = e.tensor(2.0)
    x = e.tensor(np.float32(2))
    y = x * x * x
    (d,) = e.gradients([y], [x])
    (dd,) = e.gradients([d], [x])
    assert d.item() == 12 and dd.item() == 12


def test_a_tape_survives_looking():
    v = e.Variable(np.float32(3))
    e.tape_begin()
    y = v.value() * v.value()
    assert y.item() == 9
    z = y * v.value()
    assert z.item() == 27
    (g,) = e.gradients([z], [v])
    e.tape_end()
    assert g.item() == 27


def test_a_tape_remembers_what_variables_held():
    v = e.Variable(np.float32(3))
    e.tape_begin()
    y = v.value() * v.value()
    v.assign(10)
    assert v.numpy() == 10
    z = y * v.value()
    assert z.item() == 90
    (g,) = e.gradients([y], [v])
    assert g.item() == 6
    e.tape_end()
    assert v.numpy() == 10


def test_a_loop_of_steps():
    rng = np.random.default_rng(1)
    a, w = rng.normal(size=(64, 4)).astype("float32"), rng.normal(size=(4, 1)).astype("float32")
    b = a @ w
    v = e.Variable(np.zeros((4, 1), "float32"))
    expected = np.zeros((4, 1), "float32")
    for _ in range(50):
        e.tape_begin()
        loss = e.reduce("mean", e.unary("square", e.matmul(a, v) - b))
        (g,) = e.gradients([loss], [v])
        e.tape_end()
        v.assign_sub(g * 0.1)
        expected -= 0.1 * 2 * a.T @ (a @ expected - b) / 64
    np.testing.assert_allclose(v.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_optimizers_change_in_place():
    v, m = e.Variable(X), e.Variable(np.zeros_like(X))
    g = np.ones_like(X)
    expected, momentum = X.copy(), np.zeros_like(X)
    for step in range(1, 4):
        e.optimize("sgd", v, [m], g, 0.1, step, {"momentum": 0.9})
        momentum = 0.9 * momentum - 0.1 * g
        expected = expected + momentum
    np.testing.assert_allclose(v.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(m.numpy(), momentum, rtol=1e-5)
    with pytest.raises(TypeError, match="no constant 'beta'"):
        e.optimize("adam", v, [m, m], g, 0.1, 1, {"beta": 0.9})
    with pytest.raises(ValueError, match="no optimizer"):
        e.optimize("adan", v, [m], g, 0.1, 1)


def test_old_and_new_values_of_an_optimized_variable_side_by_side():
    v = e.Variable(X)
    old = v.value() * 2
    e.optimize("sgd", v, [], np.ones_like(X), 1.0, 1)
    both = old + v.value()
    np.testing.assert_allclose(both.numpy(), 2 * X + X - 1)
    e.tape_begin()
    y = e.reduce("sum", v.value() * v.value())
    e.optimize("sgd", v, [], np.ones_like(X), 1.0, 2)
    z = y + e.reduce("sum", v.value())
    (g,) = e.gradients([y], [v])
    np.testing.assert_allclose(g.numpy(), 2 * (X - 1))
    np.testing.assert_allclose(z.item(), ((X - 1) ** 2).sum() + (X - 2).sum(), rtol=1e-5)
    e.tape_end()


def test_programs():
    v = e.Variable(np.float32(1))
    outer = e.tensor(X) + 1
    (x,) = e.trace_begin([((2, 3), "float32")])
    assert x.is_symbolic and e.trace_depth() == 1
    y = x * v.value() + outer
    v.assign_add(1)
    p = e.trace_end([y, v.value()])
    assert p.input_types == [([2, 3], "float32")] and len(p.output_types) == 2 and not e.trace_depth()
    assert v.numpy() == 1
    a, b = p([X])
    assert (a.numpy() == X + X + 1).all() and b.item() == 2 and v.numpy() == 2
    a, b = p([X])
    assert (a.numpy() == 2 * X + X + 1).all() and v.numpy() == 3
    with pytest.raises(ValueError, match="takes"):
        p([X[:1]])
    with pytest.raises(TypeError, match="inputs"):
        p([])
    with pytest.raises(ValueError, match="traced"):
        e.unary("neg", y)


def test_looking_inside_a_trace():
    (x,) = e.trace_begin([((), "float32")])
    try:
        with pytest.raises(e.UntraceableError):
            bool(x > 0)
    finally:
        e.trace_abort()
    assert e.tensor(1.0).item() == 1


def test_gradients_inside_a_trace():
    v = e.Variable(np.float32(2))
    (x,) = e.trace_begin([((), "float32")])
    y = v.value() * v.value() * x
    p = e.trace_end(e.gradients([y], [v, x]))
    a, b = p([5.0])
    assert a.item() == 20 and b.item() == 4


def test_programs_inside_tapes_and_traces():
    (x,) = e.trace_begin([((), "float32")])
    square = e.trace_end([x * x])
    t = e.tensor(np.float32(3))
    e.tape_begin()
    (y,) = e.inline(square, [t])
    (g,) = e.gradients([y], [t])
    e.tape_end()
    assert g.item() == 6
    (x,) = e.trace_begin([((), "float32")])
    fourth = e.trace_end(square(square([x])))
    assert fourth([np.float32(2)])[0].item() == 16


def test_long_records_run_by_themselves():
    t = e.tensor(np.zeros(4, "float32"))
    for _ in range(10_000):
        t = t + 1
    assert (t.numpy() == 10_000).all()


def test_threads():
    import threading

    results = []

    def work(k):
        t = e.tensor(np.full(100, k, "float32"))
        for _ in range(50):
            t = t + 1
            if _ % 10 == 0:
                t.numpy()
        results.append((k, float(t.numpy()[0])))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert sorted(results) == [(k, k + 50.0) for k in range(4)]
