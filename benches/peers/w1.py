"""W1: a small MLP over a large data set. 1000 -> Dense(128, ReLU) -> Dense(1, sigmoid), binary cross-entropy,
Adam(1e-3), batches of 32 in order, from files of 200,000 rows that are mapped, not loaded.

At this size a step is mostly overhead, so each peer has its best arrangement: fused Adam and slices of the array in PyTorch,
one compiled step with donated state in JAX, many steps per call in Keras. Losses are summed and read once a block.
"""

import os
import time

import numpy as np

import measure

VARIANTS = ["torch", "torch-compile", "jax", "keras", "keras-jit"]
a = measure.arguments(__doc__, VARIANTS, data=".", steps=1000, repeats=5, batch=32, hidden=128)
run = measure.Run("W1", a.variant)
X = np.load(os.path.join(a.data, "x.npy"), mmap_mode="r")
Y = np.load(os.path.join(a.data, "y.npy"))
FEATURES, BATCHES = X.shape[1], len(X) // a.batch


def batch(number):
    start = number % BATCHES * a.batch
    return X[start:start + a.batch], Y[start:start + a.batch]


def blocks(step):
    """Like `Run.time`, but the losses of a block, which need not be ready yet, are read at its end."""
    number, seconds, losses = 0, [], []
    for block in range(a.repeats + 1):
        steps = a.steps if block else 100
        start, total = time.perf_counter(), 0.0
        for number in range(number, number + steps):
            total = total + step(number)
        losses.append(float(total) / steps)
        seconds.append((time.perf_counter() - start) / steps)
    run.blocks(seconds[1:])
    run.losses(losses)
    run.finish(a.batch)


def torch_peer():
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, a.hidden), nn.ReLU(), nn.Linear(a.hidden, 1))
    for layer in (model[0], model[2]):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loss_of = nn.BCEWithLogitsLoss()
    forward = torch.compile(lambda x, y: loss_of(model(x), y)) if a.variant == "torch-compile" else lambda x, y: loss_of(model(x), y)

    def step(number):
        # A mapped file is read-only; PyTorch warns once and never writes.
        x, y = (torch.from_numpy(part) for part in batch(number))
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    blocks(step)


def jax_peer():
    import functools

    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)

    def glorot(n_in, n_out):
        limit = np.sqrt(6 / (n_in + n_out))
        return jnp.asarray(rng.uniform(-limit, limit, (n_in, n_out)), jnp.float32)

    weights = [glorot(FEATURES, a.hidden), jnp.zeros(a.hidden), glorot(a.hidden, 1), jnp.zeros(1)]

    def loss_of(w, x, y):
        z = jax.nn.relu(x @ w[0] + w[1]) @ w[2] + w[3]
        return jnp.mean(jnp.maximum(z, 0) - z * y + jnp.log1p(jnp.exp(-jnp.abs(z))))

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state, x, y):
        w, m, v, t = state
        loss, g = jax.value_and_grad(loss_of)(w, x, y)
        t = t + 1
        rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        m = [0.9 * m + 0.1 * g for m, g in zip(m, g)]
        v = [0.999 * v + 0.001 * g * g for v, g in zip(v, g)]
        w = [w - rate * m / (jnp.sqrt(v) + 1e-7) for w, m, v in zip(w, m, v)]
        return (w, m, v, t), loss

    zeros = lambda: [jnp.zeros_like(w) for w in weights]
    state = [(weights, zeros(), zeros(), jnp.zeros((), jnp.int32))]

    def step(number):
        state[0], loss = train(state[0], *batch(number))
        return loss

    blocks(step)


def keras_peer():
    measure.quiet()
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([layers.Input((FEATURES,)), layers.Dense(a.hidden, "relu"), layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", jit_compile=a.variant == "keras-jit", steps_per_execution=50)

    def batches():
        number = 0
        while True:
            yield batch(number)
            number += 1

    shapes = tuple(tf.TensorSpec((a.batch, n), tf.float32) for n in (FEATURES, 1))
    data = tf.data.Dataset.from_generator(batches, output_signature=shapes).prefetch(tf.data.AUTOTUNE)
    run.time_fit(model, data, a.steps, a.repeats)
    run.finish(a.batch)


{"torch": torch_peer, "jax": jax_peer, "keras": keras_peer}[a.variant.split("-")[0]]()
