"""W6: memory. 24 layers of 2048 x 2048 with bias and ReLU, a batch of 4096, mean squared error, SGD(1e-3): 384 MiB of
parameters and 768 MiB of activations. One batch of normal numbers, again and again.
"""

import numpy as np

import measure

VARIANTS = ["torch", "torch-compile", "torch-checkpoint", "jax", "jax-checkpoint", "keras", "keras-jit"]
a = measure.arguments(__doc__, VARIANTS, steps=1, repeats=3, batch=4096, layers=24, width=2048, group=4)
run = measure.Run("W6", a.variant)
RATE = 1e-3
rng = np.random.default_rng(0)


def kernels():
    for _ in range(a.layers):
        yield rng.standard_normal((a.width, a.width), dtype=np.float32) * np.float32(np.sqrt(2 / a.width))


def batch():
    return (rng.standard_normal((a.batch, a.width), dtype=np.float32) for _ in range(2))


def torch_peer():
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint_sequential

    layers = []
    for kernel in kernels():
        layer = nn.Linear(a.width, a.width)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(kernel.T))
            layer.bias.zero_()
        layers += [layer, nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, fused=True)
    x, y = map(torch.from_numpy, batch())
    forward = torch.compile(model) if a.variant == "torch-compile" else model
    if a.variant == "torch-checkpoint":
        forward = lambda x: checkpoint_sequential(model, a.layers // a.group, x, use_reentrant=False)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    run.time(step, a.steps, a.repeats, warm_up=1)


def jax_peer():
    import functools

    import jax
    import jax.numpy as jnp

    weights = [(jnp.asarray(kernel), jnp.zeros(a.width)) for kernel in kernels()]

    def apply(x, layers):
        for kernel, bias in layers:
            x = jax.nn.relu(x @ kernel + bias)
        return x

    if a.variant == "jax-checkpoint":
        apply = jax.checkpoint(apply)

    def loss_of(weights, x, y):
        for i in range(0, a.layers, a.group):
            x = apply(x, weights[i : i + a.group])
        return jnp.mean((x - y) ** 2)

    @functools.partial(jax.jit, donate_argnums=0)
    def train(weights, x, y):
        loss, g = jax.value_and_grad(loss_of)(weights, x, y)
        return jax.tree.map(lambda w, g: w - RATE * g, weights, g), loss

    x, y = map(jnp.asarray, batch())
    state = [weights]
    del weights

    def step():
        state[0], loss = train(state[0], x, y)
        return float(loss)

    run.time(step, a.steps, a.repeats, warm_up=1)


def keras_peer():
    measure.quiet()
    import tensorflow as tf

    weights = [(tf.Variable(kernel), tf.Variable(tf.zeros(a.width))) for kernel in kernels()]
    flat = [w for layer in weights for w in layer]
    x, y = map(tf.constant, batch())

    # A plain compiled function: leaner than `fit`, which copies the batch.
    @tf.function(jit_compile=a.variant == "keras-jit")
    def train():
        with tf.GradientTape() as tape:
            h = x
            for kernel, bias in weights:
                h = tf.nn.relu(tf.matmul(h, kernel) + bias)
            loss = tf.reduce_mean(tf.math.squared_difference(h, y))
        for w, g in zip(flat, tape.gradient(loss, flat)):
            w.assign_sub(RATE * g)
        return loss

    run.time(lambda: float(train()), a.steps, a.repeats, warm_up=1)


{"torch": torch_peer, "jax": jax_peer, "keras": keras_peer}[a.variant.split("-")[0]]()
run.finish(a.batch)
