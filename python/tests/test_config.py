"""Devices, limits, sessions, strategies; each in a process of its own where it matters what came before."""

import subprocess
import sys

import pytest


def run(code, **environment):
    import os

    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=env)


def test_devices(tf):
    assert len(tf.config.list_physical_devices("CPU")) == 1 and tf.config.list_physical_devices("GPU") == []
    with tf.device("/GPU:0"):
        assert float(tf.constant(1.0) + 1) == 2
    with pytest.raises(ValueError):
        with tf.device("nowhere"):
            pass


def test_limit_on_the_cpu():
    done = run(
        "import plimsoll as tf\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration(memory_limit=300)])\n"
        "print(tf.config.list_logical_devices('CPU'))\n"
        "try:\n"
        "    tf.config.set_logical_device_configuration(cpu, [])\n"
        "except RuntimeError as error:\n"
        "    print('late', error)\n"
        "try:\n"
        "    x = tf.random.normal((20000, 10000)); float(tf.reduce_sum(tf.matmul(x, x, transpose_b=True)))\n"
        "except MemoryError as error:\n"
        "    print('refused', isinstance(error, tf.errors.ResourceExhaustedError) or type(error).__name__)\n"
    )
    assert done.returncode == 0, done.stderr
    assert "/device:CPU:0" in done.stdout and "late" in done.stdout and "refused" in done.stdout


def test_sizes(tf):
    from plimsoll._limit import bytes_of

    assert bytes_of("512MiB") == 512 * 2**20 and bytes_of("2 GB") == 2 * 10**9 and bytes_of("1.5g") == 3 * 2**29 and bytes_of(7) == 7
    with pytest.raises(ValueError, match="512MiB"):
        bytes_of("much")


def test_v1_graph():
    done = run(
        "import numpy as np, plimsoll as tf\n"
        "v1 = tf.compat.v1\n"
        "v1.disable_eager_execution()\n"
        "x = v1.placeholder(tf.float32, [None, 2])\n"
        "w = v1.get_variable('w', [2, 1], initializer=v1.zeros_initializer())\n"
        "loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))\n"
        "train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)\n"
        "with v1.Session() as sess:\n"
        "    sess.run(v1.global_variables_initializer())\n"
        "    for _ in range(20):\n"
        "        _, l = sess.run([train, loss], feed_dict={x: np.eye(2)})\n"
        "    print(float(l), sess.run(w).ravel())\n"
    )
    assert done.returncode == 0, done.stderr
    # w moves by 0.1 (1 - w) at every step; the loss is that of the step's beginning.
    assert abs(float(done.stdout.split()[0]) - 0.9 ** (2 * 19)) < 1e-5


def test_strategy(tf):
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        v = tf.Variable(1.0)
        assert tf.distribute.get_strategy() is strategy
    assert strategy.num_replicas_in_sync == 1
    found = strategy.run(lambda x: x * v, args=(tf.constant([1.0, 2.0]),))
    assert float(strategy.reduce(tf.distribute.ReduceOp.SUM, found, axis=0)) == 3
    with pytest.raises(ValueError, match="one device"):
        tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"])


def test_checkpoint(tf, tmp_path):
    v, w = tf.Variable([1.0, 2.0]), tf.Variable(3)
    saved = tf.train.Checkpoint(v=v, w=w)
    manager = tf.train.CheckpointManager(saved, str(tmp_path), max_to_keep=2)
    for i in range(3):
        v.assign([float(i), 0.0])
        manager.save()
    assert len(list(tmp_path.glob("*.npz"))) == 2
    v.assign([9.0, 9.0])
    saved.restore(tf.train.latest_checkpoint(str(tmp_path))).assert_consumed()
    assert v.numpy().tolist() == [2, 0]


def test_summaries(tf, tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        for step in range(3):
            tf.summary.scalar("loss", 1.0 / (step + 1), step=step)
    writer.close()
    (path,) = tmp_path.iterdir()
    # An event file is a TFRecord file: our own reader checks its checksums.
    records = list(tf.data.TFRecordDataset(str(path)))
    assert len(records) == 4 and b"loss" in records[1].numpy() and b"brain.Event:2" in records[0].numpy()
