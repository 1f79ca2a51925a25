"""Gradients: formulas, and what TensorFlow's documentation says of tapes."""

import numpy as np
import pytest


def test_gradient(tf):
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = x * x
    assert float(tape.gradient(y, x)) == 6
    with pytest.raises(RuntimeError, match="persistent"):
        tape.gradient(y, x)


def test_structure_of_sources(tf):
    w = {"w": tf.Variable([1.0, 2.0]), "b": [tf.Variable(1.0), tf.Variable(2.0)]}
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(w["w"] ** 2) * w["b"][0]
    found = tape.gradient(y, w)
    assert found["w"].numpy().tolist() == [2, 4] and float(found["b"][0]) == 5 and found["b"][1] is None


def test_unconnected(tf):
    x, other = tf.Variable(3.0), tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = x * x
    zero = tape.gradient(y, other, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert zero.numpy().tolist() == [0, 0]


def test_only_watched_tensors(tf):
    c = tf.constant(3.0)
    with tf.GradientTape() as tape:
        y = c * c
    assert tape.gradient(y, c) is None
    with tf.GradientTape() as tape:
        tape.watch(c)
        y = c * c
    assert float(tape.gradient(y, c)) == 6


def test_what_was_before_the_tape_is_constant(tf):
    x = tf.constant(3.0)
    square = x * x
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = square * x
    assert float(tape.gradient(y, x)) == 9


def test_intermediate_values(tf):
    x = tf.Variable(3.0)
    with tf.GradientTape(persistent=True) as tape:
        y = x * x
        z = y * y
    assert float(tape.gradient(z, y)) == 18 and float(tape.gradient(z, x)) == 108 and float(tape.gradient(y, x)) == 6


def test_looking_at_values_under_a_tape(tf):
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = x * x
        scale = 2.0 if float(y) > 5 else 1.0
        z = y * scale
    assert float(tape.gradient(z, x)) == 12


def test_second_order(tf):
    x = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = x**3
        dy = inner.gradient(y, x)
    assert float(outer.gradient(dy, x)) == 12


def test_jacobian(tf):
    x = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        y = tf.stack([tf.reduce_sum(x**2), x[0] * x[1]])
    np.testing.assert_allclose(tape.jacobian(y, x).numpy(), [[2, 4, 6], [2, 1, 0]])
    m = tf.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    with tf.GradientTape() as tape:
        tape.watch(m)
        y = m**2
    found = tape.batch_jacobian(y, m).numpy()
    np.testing.assert_allclose(found, [np.diag(2 * row) for row in m.numpy()])


def test_stop_recording(tf):
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = x * x
        with tape.stop_recording():
            z = x * 10.0
        w = y + z
    assert float(tape.gradient(w, x)) == 6


def test_output_gradients(tf):
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = x * 3.0
    assert tape.gradient(y, x, output_gradients=tf.constant([1.0, 10.0])).numpy().tolist() == [3, 30]


def test_assignment_between(tf):
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = x * x
        x.assign(5.0)
    assert float(tape.gradient(y, x)) == 6 and float(x) == 5


def test_not_trainable(tf):
    x = tf.Variable(3.0, trainable=False)
    with tf.GradientTape() as tape:
        y = x * x
    assert tape.gradient(y, x) is None


def test_custom_gradient(tf):
    @tf.custom_gradient
    def clipped(x):
        return x * 2.0, lambda dy: tf.clip_by_value(dy, -0.1, 0.1) * 0.0 + dy * 7.0

    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = clipped(x) * 2.0
    assert float(y) == 12 and float(tape.gradient(y, x)) == 14


def test_custom_gradients_need_not_be_linear(tf):
    seen = []

    @tf.custom_gradient
    def clipped(x, w):
        def gradient(dy):
            seen.append(dy)
            # Neither linear in what arrives nor dependent on it.
            return tf.clip_by_value(dy, -1.0, 1.0), tf.constant([7.0, 8.0])

        return x * w, gradient

    x, w = tf.constant([0.1, 3.0]), tf.constant([1.0, 1.0])

    def both(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.reduce_sum(clipped(x, w) ** 2)
        return tape.gradient(y, [x, w])

    for run in (both, tf.function(both)):
        dx, dw = run(x, w)
        np.testing.assert_allclose(dx, [0.2, 1.0], rtol=1e-6)
        np.testing.assert_allclose(dw, [7.0, 8.0])
    assert len(seen) == 2


def test_training_loop(tf):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3)).astype(np.float32)
    y = x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 0.3
    w, b = tf.Variable(tf.zeros((3, 1))), tf.Variable(0.0)
    nw, nb = np.zeros((3, 1)), 0.0
    for _ in range(50):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w + b - y) ** 2)
        dw, db = tape.gradient(loss, [w, b])
        w.assign_sub(0.1 * dw)
        b.assign_sub(0.1 * db)
        off = x @ nw + nb - y
        nw, nb = nw - 0.1 * 2 * x.T @ off / len(x), nb - 0.1 * 2 * off.mean()
    np.testing.assert_allclose(w.numpy(), nw, rtol=1e-4)
    np.testing.assert_allclose(b.numpy(), nb, rtol=1e-4)
