"""Tensors in other processes, and processes that fork."""

import copy
import os
import pickle
import signal
import threading

import numpy as np
import pytest


def in_child(work, seconds=60):
    """Runs `work` in a forked child, which is killed if it hangs; whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(seconds)
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def test_tensors_are_pickled_and_copied(tf):
    for x in (tf.constant([[1.5, 2.0]]), tf.constant(3, tf.int64), tf.cast([1.0, 0.3], tf.bfloat16), tf.constant([True])):
        for same in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
            assert same.dtype == x.dtype and same.shape == x.shape
            assert np.array_equal(same.numpy(), x.numpy())


def test_a_forked_child_goes_on_with_the_engine(tf):
    x = tf.constant(np.ones((700, 700), "float32"))
    weight = tf.Variable(x)
    pending = x @ x

    def work():
        assert float(tf.reduce_sum(pending)) == 700.0**3
        weight.assign_add(x)
        assert float(weight[0, 0]) == 2.0
        assert [int(v) for v in tf.data.Dataset.range(5).prefetch(2)] == [0, 1, 2, 3, 4]

    assert in_child(work)
    assert float(weight[0, 0]) == 1.0
    assert float(tf.reduce_sum(pending)) == 700.0**3


def test_a_fork_while_another_thread_computes(tf):
    x = tf.constant(np.full((400, 400), 0.01, "float32"))
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            (x @ x @ x).numpy()

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for _ in range(10):
            assert in_child(lambda: (x @ x).numpy())
    finally:
        stop.set()
        thread.join()


def test_an_iterator_stays_in_its_process(tf):
    elements = iter(tf.data.Dataset.range(100).map(lambda v: v + 1, num_parallel_calls=2).prefetch(4))
    assert int(next(elements)) == 1

    def work():
        with pytest.raises(Exception, match="forked"):
            next(elements)

    assert in_child(work)
    assert int(next(elements)) == 2
