"""W1, W4 and W5 through Keras on each backend, each in a process of its own.

    python benches/keras.py [--backends plimsoll tensorflow jax torch] [--workloads W1 W4 W5] [--rounds 2] [--python PATH]

W1: an MLP 1000-128-1 on 20,000 rows, batch 32. W4: five 3x3 convolutions with batch normalisation on 32x32x3, batch 64. W5: a GPT
of 4 blocks, width 256, 8192 words, 8 x 256 tokens. The same Keras code runs on every backend: `fit` on NumPy arrays, `verbose=0`.
The figure is the time per step of the best of the epochs after the first, and the process's peak of resident memory (VmHWM).
Backends take turns; the best time and the smallest peak of each over all rounds count, and are what the ratios are of.
The engine must be a release build: `maturin develop --release`, or a wheel.
`--python` names the interpreter for the other backends, when they are installed in an environment of their own.
"""

import argparse
import json
import os
import subprocess
import sys
import time


def mlp(keras, np):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 1000), dtype=np.float32)
    y = (x @ rng.standard_normal(1000, dtype=np.float32) > 0).astype("float32")
    layers = keras.layers
    model = keras.Sequential([keras.Input((1000,)), layers.Dense(128, activation="relu"), layers.Dense(1, activation="sigmoid")])
    model.compile("adam", "binary_crossentropy")
    return model, x, y, 32


def cnn(keras, np):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((640, 32, 32, 3), dtype=np.float32)
    y = rng.integers(0, 10, 640).astype("int32")
    layers = keras.layers
    stack = [keras.Input((32, 32, 3))]
    for width in (32, 32, None, 64, 64, None, 128):
        if width is None:
            stack.append(layers.MaxPooling2D())
        else:
            stack += [layers.Conv2D(width, 3, padding="same", use_bias=False), layers.BatchNormalization(), layers.ReLU()]
    model = keras.Sequential([*stack, layers.GlobalAveragePooling2D(), layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, x, y, 64


def gpt(keras, np):
    words, width, blocks, heads, time_steps = 8192, 256, 4, 4, 256
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, words, (32, time_steps + 1)).astype("int32")
    layers, small = keras.layers, keras.initializers.RandomNormal(stddev=0.02)

    class Position(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(time_steps, width), initializer=small)

        def call(self, x):
            return x + self.table

    inputs = keras.Input((time_steps,), dtype="int32")
    h = Position()(layers.Embedding(words, width, embeddings_initializer=small)(inputs))
    for _ in range(blocks):
        n = layers.LayerNormalization(epsilon=1e-5)(h)
        h = h + layers.MultiHeadAttention(heads, width // heads)(n, n, use_causal_mask=True)
        n = layers.LayerNormalization(epsilon=1e-5)(h)
        h = h + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(n))
    out = layers.Dense(words, use_bias=False)(layers.LayerNormalization(epsilon=1e-5)(h))
    model = keras.Model(inputs, out)
    model.compile(keras.optimizers.AdamW(3e-4, weight_decay=0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, tokens[:, :-1], tokens[:, 1:], 8


WORKLOADS = {"W1": mlp, "W4": cnn, "W5": gpt}


def measure(workload, epochs):
    """One workload on the backend of the environment, as a line of JSON."""
    # This file's own folder comes first on the path, and in it `keras` is this file.
    sys.path = [folder for folder in sys.path if os.path.abspath(folder or ".") != os.path.dirname(os.path.abspath(__file__))]
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    model, x, y, batch = WORKLOADS[workload](keras, np)
    seconds = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begun = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            seconds.append(time.perf_counter() - self.begun)

    history = model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0, callbacks=[Clock()])
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    steps = -(-len(x) // batch)
    found = {
        "workload": workload,
        "backend": keras.config.backend(),
        "ms_per_step": round(1e3 * min(seconds[1:]) / steps, 3),
        "first_epoch_s": round(seconds[0], 2),
        "VmHWM_MiB": round(peak / 1024),
        "loss": round(float(history.history["loss"][-1]), 4),
    }
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=["plimsoll", "tensorflow", "jax", "torch"])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return measure(options.one, options.epochs)
    print(f"{'':4} {'backend':12} {'ms/step':>9} {'first epoch':>12} {'VmHWM MiB':>10} {'loss':>8}")
    for workload in options.workloads:
        rows = {}
        for backend in options.backends * options.rounds:
            row = run(workload, backend, options)
            if row is not None:
                rows.setdefault(backend, []).append(row)
        best = {backend: [min(row[name] for row in found) for name in ("ms_per_step", "VmHWM_MiB")] for backend, found in rows.items()}
        peers = [figures for backend, figures in best.items() if backend != "plimsoll"]
        if "plimsoll" in best and peers:
            time_ratio, memory_ratio = (best["plimsoll"][i] / min(peer[i] for peer in peers) for i in (0, 1))
            print(f"{workload:4} ours / the best of the others: time {time_ratio:.2f}, memory {memory_ratio:.2f}", flush=True)


def run(workload, backend, options):
    """One measurement in a process of its own, printed; None if it failed."""
    python = sys.executable if backend == "plimsoll" else options.python
    environment = dict(os.environ, KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    command = [python, __file__, "--one", workload, "--epochs", str(options.epochs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{workload:4} {backend:12} failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
        return None
    row = json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"{workload:4} {backend:12} {row['ms_per_step']:9.3f} {row['first_epoch_s']:10.2f} s {row['VmHWM_MiB']:10} {row['loss']:8}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
