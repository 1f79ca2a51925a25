"""The memory limit, for whole models: measured from outside, each in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

MEASURE = (
    "import os, subprocess, sys\n"
    "child = subprocess.Popen(sys.argv[1:])\n"
    "_, status, usage = os.wait4(child.pid, 0)\n"
    "print('PEAK', usage.ru_maxrss << 10)\n"
    "os._exit(os.waitstatus_to_exitcode(status) & 0xff)\n"
)


def run(code, limit=None, **more):
    """What a program printed last, as JSON, and its peak in bytes as the kernel counts it."""
    env = {**os.environ, "KERAS_BACKEND": "plimsoll", **more}
    if limit is not None:
        env["PLIMSOLL_MEMORY_LIMIT"] = str(limit)
    done = subprocess.run([sys.executable, "-c", MEASURE, sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    output, _, peak = done.stdout.rpartition("PEAK")
    return json.loads(output.strip().splitlines()[-1]), int(peak)


# 12 layers of 1024 x 1024: 48 MiB of weights, and twice as much for Adam.
LARGE = """
import hashlib, json
import numpy as np, keras
import plimsoll

keras.utils.set_random_seed(3)
rng = np.random.default_rng(0)
x = rng.standard_normal((64, 1024), dtype=np.float32)
y = rng.standard_normal((64, 1), dtype=np.float32)
model = keras.Sequential([keras.Input((1024,))] + [keras.layers.Dense(1024, activation="relu") for _ in range(12)] + [keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=32, epochs=3, verbose=0, shuffle=False)
after = model.evaluate(x, y, batch_size=32, verbose=0)
digest = hashlib.sha256()
for w in model.weights:
    digest.update(np.ascontiguousarray(w.numpy()).tobytes())
info = plimsoll.memory_info()
print(json.dumps([history.history["loss"], after, digest.hexdigest(), info["states_in_file"], info["states"]]))
"""

# What Python and Keras take themselves. The engine counts libraries whole, which is more than the kernel has of them in memory.
BASELINE = """
import numpy, keras, plimsoll

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(numpy.ones((8, 8)), numpy.ones((8, 1)), verbose=0)
print(plimsoll._engine.ledger()["process"][0])
"""


def test_weights_and_optimizer_may_be_several_times_the_limit():
    counted, baseline = run(BASELINE)
    free, peak = run(LARGE)
    assert free[3] == 0
    states = 3 * 12 * (1024 * 1024 * 4)
    room = states // 3
    assert peak > baseline + states
    limit = counted + room
    limited, peak = run(LARGE, limit)
    assert limited[:3] == free[:3], "the same losses and weights, to the last bit"
    assert limited[3] > states // 2 and limited[4] < room
    assert peak <= min(limit, baseline + room + (8 << 20)), f"{peak >> 20} MiB; limit {limit >> 20}, baseline {baseline >> 20}"


NOTEBOOK = """
import json
import numpy as np, plimsoll as tf

keras = tf.keras
x = np.ones((4096, 512), np.float32)
y = np.ones((4096, 1), np.float32)
model = keras.Sequential([keras.Input((512,))] + [keras.layers.Dense(512, activation="relu") for _ in range(8)] + [keras.layers.BatchNormalization(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
tf.set_memory_limit(tf.memory_info()["current"] + (3 << 20))
seen = []
for attempt in range(5):
    try:
        model.fit(x, y, batch_size=4096, epochs=1, verbose=0)
        seen.append("fits")
        break
    except tf.WouldNotFitError as error:
        # A refusal names a limit that would do for what was asked; the next thing asked may need more.
        seen.append("refused")
        smallest = error.smallest
        tf.set_memory_limit(smallest + (8 << 20))
model.fit(x, y, batch_size=4096, epochs=1, verbose=0)
print(json.dumps([seen, smallest, tf.memory_info()["limit"]]))
"""


def test_after_a_refusal_a_larger_limit_counts():
    (seen, smallest, limit), peak = run(NOTEBOOK)
    assert seen[0] == "refused" and seen[-1] == "fits", seen
    assert peak <= limit == smallest + (8 << 20)


PLANNED = """
import json
import numpy as np, plimsoll as tf

model = tf.keras.Sequential([tf.keras.Input((256,))] + [tf.keras.layers.Dense(256, activation="tanh") for _ in range(16)] + [tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones((8192, 256), np.float32), np.ones((8192, 1), np.float32)
plan = model.plan(x, y, batch_size=8192)
print(json.dumps([plan.smallest, plan.peak, plan.kept]))
"""


def test_the_smallest_limit_of_a_plan_is_one_that_works():
    (smallest, peak, kept), _ = run(PLANNED)
    assert kept == "nothing had to be done"
    # Half of what the step takes plainly would not do without the limit.
    (again, small_peak, kept), _ = run(PLANNED, smallest + (4 << 20))
    assert kept != "nothing had to be done" and small_peak < peak
    assert abs(again - smallest) < 4 << 20


GROWING = """
import json
import numpy as np, plimsoll as tf

tf.keras.utils.set_random_seed(3)

model = tf.keras.Sequential([tf.keras.Input((256,))] + [tf.keras.layers.Dense(256, activation="tanh") for _ in range(16)] + [tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, y = np.ones((8192, 256), np.float32), np.ones((8192, 1), np.float32)
held, arenas, losses = [], [], []
for epoch in range(6):
    losses.append(model.fit(x, y, batch_size=8192, epochs=1, verbose=0).history["loss"][0])
    arenas.append(tf.memory_info()["arena"])
    if epoch >= 1 and GROWS:
        held.append(np.ones((32 << 20) // 8))  # the user's own memory
        import time
        time.sleep(0.6)
print(json.dumps([losses, arenas, tf.memory_info()["held"]]))
"""


def test_memory_that_grows_elsewhere_is_noticed_between_steps():
    (losses, arenas, held), _ = run(GROWING.replace("GROWS", "False"))
    (again, shrinking, _), _ = run(GROWING.replace("GROWS", "True"), held + (80 << 20))
    assert again == losses, "no bit of the results changes"
    assert shrinking[0] == arenas[0] and shrinking[-1] < arenas[-1], "later steps are planned with less"
