"""Input pipelines: what TensorFlow documents of tf.data."""

import subprocess
import sys

import numpy as np
import pytest


def listed(data):
    return [x.tolist() if isinstance(x, (np.ndarray, np.generic)) else x for x in data.as_numpy_iterator()]


def test_structures(tf):
    data = tf.data.Dataset.from_tensor_slices({"b": np.arange(4), "a": (np.ones((4, 2), np.float32), ["w", "x", "y", "z"])})
    first = next(iter(data))
    assert int(first["b"]) == 0 and first["a"][0].shape == (2,) and first["a"][1].numpy() == b"w"
    spec = data.batch(2).element_spec
    assert spec["b"] == tf.TensorSpec((2,), tf.int64) and spec["a"][1].dtype == tf.string
    batch = next(iter(data.batch(3)))
    assert batch["a"][1].numpy().tolist() == [b"w", b"x", b"y"]


def test_arrays_are_not_copied(tf):
    x = np.zeros((4, 3), np.float32)
    data = tf.data.Dataset.from_tensor_slices(x)
    x[2] = 7
    assert listed(data)[2] == [7, 7, 7]


def test_shuffle(tf):
    data = tf.data.Dataset.range(100).shuffle(100, seed=3)
    first, second = listed(data), listed(data)
    assert sorted(first) == list(range(100)) and first != list(range(100)) and first != second
    again = tf.data.Dataset.range(100).shuffle(100, seed=3)
    assert listed(again) == first
    same = tf.data.Dataset.range(50).shuffle(10, seed=3, reshuffle_each_iteration=False)
    assert listed(same) == listed(same)
    # Drawn from a buffer of 10: nothing comes much before its turn.
    assert all(x < place + 10 for place, x in enumerate(listed(same)))


def test_map_traced_and_called(tf):
    data = tf.data.Dataset.from_tensor_slices(np.arange(6, dtype=np.float32).reshape(3, 2))
    called = []

    def with_python(x):
        called.append(1)
        return x.numpy().sum() * 2

    def with_tensors(x):
        called.append(1)
        return tf.reduce_sum(x) * 2

    assert listed(data.map(with_python)) == [2, 10, 18]
    called.clear()
    mapped = data.map(with_tensors, num_parallel_calls=tf.data.AUTOTUNE)
    assert listed(mapped) == [2, 10, 18] and len(called) == 1
    assert mapped.element_spec == tf.TensorSpec((), tf.float32)


def test_errors_of_functions_come_back(tf):
    class Mine(Exception):
        pass

    def fails(x):
        if int(x) == 3:
            raise Mine("at three")
        return x

    data = tf.data.Dataset.range(5).map(fails)
    found = iter(data)
    with pytest.raises(Mine, match="at three"):
        for _ in range(5):
            next(found)


def test_generators(tf):
    def numbers(n):
        for i in range(n):
            yield i, [float(i)] * 2

    spec = (tf.TensorSpec((), tf.int32), tf.TensorSpec((2,), tf.float32))
    data = tf.data.Dataset.from_generator(numbers, args=(3,), output_signature=spec).prefetch(2)
    for _ in range(2):
        assert [(int(i), x.numpy().tolist()) for i, x in data] == [(0, [0, 0]), (1, [1, 1]), (2, [2, 2])]
    wrong = tf.data.Dataset.from_generator(lambda: iter([[1.0, 2.0, 3.0]]), output_signature=tf.TensorSpec((2,), tf.float32))
    with pytest.raises(TypeError, match="shape"):
        list(wrong)
    endless = tf.data.Dataset.from_generator(lambda: iter(range(10**9)), output_signature=tf.TensorSpec((), tf.int64))
    assert listed(endless.take(3)) == [0, 1, 2]


def test_lengths(tf):
    assert len(tf.data.Dataset.range(10).batch(3)) == 4
    with pytest.raises(TypeError, match="infinite"):
        len(tf.data.Dataset.range(3).repeat())
    with pytest.raises(ValueError):
        tf.data.Dataset.from_tensor_slices((np.zeros(3), np.zeros(4)))


def test_saved(tf, tmp_path):
    data = tf.data.Dataset.from_tensor_slices((np.arange(5), ["a", "b", "c", "d", "e"]))
    data.save(str(tmp_path / "saved"))
    back = tf.data.Dataset.load(str(tmp_path / "saved"))
    assert [(int(i), s.numpy()) for i, s in back] == [(int(i), s.numpy()) for i, s in data]


def test_cache_in_a_file(tf, tmp_path):
    calls = []

    def noted(x):
        calls.append(1)
        return x.numpy()

    data = tf.data.Dataset.range(4).map(noted).cache(str(tmp_path / "cached"))
    assert listed(data) == [0, 1, 2, 3]
    before = len(calls)
    assert listed(data) == [0, 1, 2, 3] and len(calls) == before


def test_get_next_at_the_end(tf):
    found = iter(tf.data.Dataset.range(1))
    found.get_next()
    with pytest.raises(tf.errors.OutOfRangeError):
        found.get_next()


def test_other_libraries_read_batches(tf):
    batch = next(iter(tf.data.Dataset.from_tensor_slices(np.arange(6, dtype=np.float32)).batch(4)))
    np.testing.assert_array_equal(np.asarray(batch), [0, 1, 2, 3])
    assert memoryview(np.asarray(batch)).readonly


def test_a_pipeline_streams(tf):
    """800 MB of rows that a function makes go through in far less memory."""
    code = """
import resource, numpy as np, plimsoll as tf
rows = tf.data.Dataset.range(20000).map(lambda i: tf.cast(tf.fill([10000], i), tf.float32)).batch(32).prefetch(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = sum(float(x[0, 0]) for x in rows)
print(total, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    total, mib = done.stdout.split()
    assert float(total) == sum(range(0, 20000, 32)) and int(mib) < 64
