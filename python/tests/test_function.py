"""`tf.function`: traced once for each signature, and the same results as without."""

import warnings

import numpy as np
import pytest


def test_traced_once_per_signature(tf):
    calls = []

    @tf.function
    def f(x, y):
        calls.append(1)
        return tf.matmul(x, y) + 1.0

    a = np.ones((2, 3), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(f(a, a.T).numpy(), a @ a.T + 1)
    assert len(calls) == 1
    f(np.ones((4, 3), np.float32), a.T)
    assert len(calls) == 2


def test_python_values_are_part_of_the_signature(tf):
    @tf.function
    def f(x, double):
        return x * 2.0 if double else x

    assert float(f(tf.constant(3.0), True)) == 6 and float(f(tf.constant(3.0), False)) == 3


def test_variables_change(tf):
    count = tf.Variable(0)

    @tf.function
    def step(x):
        count.assign_add(1)
        return x + tf.cast(count, tf.float32)

    assert float(step(tf.constant(1.0))) == 2 and float(step(tf.constant(1.0))) == 3 and int(count) == 2


def test_variables_made_inside(tf):
    class Model(tf.Module):
        v = None

        @tf.function
        def __call__(self, x):
            if self.v is None:
                self.v = tf.Variable(tf.ones((3,)) * 2.0)
            return x * self.v

    model = Model()
    assert model(tf.ones((3,))).numpy().tolist() == [2, 2, 2]
    model.v.assign([1.0, 2.0, 3.0])
    assert model(tf.ones((3,))).numpy().tolist() == [1, 2, 3]


def test_control_flow_falls_back_with_one_warning(tf):
    @tf.function
    def f(x):
        while tf.reduce_sum(x) < 100.0:
            x = x * 2.0
        return x

    assert float(f(tf.constant(3.0))) == 192
    with pytest.warns(UserWarning, match="operation by operation"):
        assert float(f(tf.constant(3.0))) == 192
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(f(tf.constant(5.0))) == 160


def test_input_signature(tf):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def f(x):
        return tf.reduce_sum(x, 0)

    assert f([[1, 2], [3, 4]]).numpy().tolist() == [4, 6]
    with pytest.raises(TypeError, match="input_signature"):
        f(tf.zeros((2, 3)))


def test_gradients_inside_and_outside(tf):
    w = tf.Variable([1.0, 2.0])

    @tf.function
    def loss_of(x):
        return tf.reduce_sum((w * x) ** 2)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(x)
        return tape.gradient(loss, w)

    x = tf.constant([3.0, 4.0])
    expected = [2 * 9 * 1, 2 * 16 * 2]
    assert step(x).numpy().tolist() == expected
    with tf.GradientTape() as tape:
        loss = loss_of(x)
    assert tape.gradient(loss, w).numpy().tolist() == expected


def test_random_numbers_are_new_in_every_call(tf):
    @tf.function
    def draw():
        return tf.random.normal((4,))

    assert not np.array_equal(draw().numpy(), draw().numpy())


def test_structures(tf):
    @tf.function
    def f(batch):
        return {"sum": batch["a"] + batch["b"][0], "same": 3}

    found = f({"a": tf.constant(1.0), "b": (tf.constant(2.0),)})
    assert float(found["sum"]) == 3 and int(found["same"]) == 3


def test_methods(tf):
    class Scale:
        def __init__(self, by):
            self.by = by

        @tf.function
        def apply(self, x):
            return x * self.by

    two, three = Scale(2.0), Scale(3.0)
    assert float(two.apply(tf.constant(1.0))) == 2 and float(three.apply(tf.constant(1.0))) == 3


def test_eagerly(tf):
    calls = []

    @tf.function
    def f(x):
        calls.append(1)
        return x

    tf.config.run_functions_eagerly(True)
    try:
        f(tf.constant(1.0)), f(tf.constant(1.0))
    finally:
        tf.config.run_functions_eagerly(False)
    assert len(calls) == 2


def test_control_functions(tf):
    assert int(tf.cond(tf.constant(True), lambda: tf.constant(1), lambda: tf.constant(2))) == 1
    i, total = tf.while_loop(lambda i, t: i < 5, lambda i, t: (i + 1, t + i), (tf.constant(0), tf.constant(0)))
    assert int(i) == 5 and int(total) == 10
    assert tf.map_fn(lambda x: x * x, tf.constant([1.0, 2.0, 3.0])).numpy().tolist() == [1, 4, 9]
    assert tf.scan(lambda a, x: a + x, tf.constant([1.0, 2.0, 3.0])).numpy().tolist() == [1, 3, 6]


def test_sizes_are_known_while_a_function_is_traced(tf, recwarn):
    @tf.function
    def ones_like_rows(x):
        rows, columns = tf.shape(x)[0], tf.shape(x)[1]
        half = rows // 2
        return tf.ones((rows, columns + 1)) * tf.reduce_sum(x) + tf.cast(half, tf.float32), int(rows), float(tf.sqrt(tf.cast(columns, tf.float32)))

    ones_like_rows(tf.fill((6, 4), 0.25))
    total, rows, root = ones_like_rows(tf.fill((6, 4), 0.5))
    assert total.shape == (6, 5) and np.all(total.numpy() == 15.0) and (rows, root) == (6, 2.0)
    assert not [w for w in recwarn if "operation by operation" in str(w.message)]


@pytest.mark.parametrize("value", ["x", "v", "rows + v"])
def test_values_of_inputs_and_variables_are_not(tf, value):
    v = tf.Variable(3)
    values = {"x": lambda x: x[0], "v": lambda x: v * 2, "rows + v": lambda x: tf.shape(x)[0] + v}

    @tf.function
    def f(x):
        return x * int(values[value](x))

    with pytest.warns(UserWarning, match="operation by operation"):
        f(tf.constant([1]))
        f(tf.constant([1]))
