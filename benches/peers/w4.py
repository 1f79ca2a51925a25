"""W4: a convolutional network on images of 32 x 32 x 3 in batches of 64, ten classes, Adam(1e-3):
conv32 conv32 pool conv64 conv64 pool conv128, global average, dense. Convolutions are 3 x 3 with padding and without
bias, each followed by batch norm and ReLU. 32 batches from memory in turn.
"""

import numpy as np

import measure

VARIANTS = ["torch", "torch-channels-last", "torch-compile", "torch-compile-channels-last", "jax", "keras", "keras-jit"]
a = measure.arguments(__doc__, VARIANTS, steps=20, repeats=5, batch=64, image=32)
run = measure.Run("W4", a.variant)
LAYERS = [32, 32, "pool", 64, 64, "pool", 128]
BATCHES, CLASSES = 32, 10
rng = np.random.default_rng(0)
X = rng.standard_normal((BATCHES * a.batch, a.image, a.image, 3), dtype=np.float32)
Y = rng.integers(0, CLASSES, BATCHES * a.batch).astype(np.int32)
count = 0


def rows():
    """The rows of the next batch."""
    global count
    start = count % BATCHES * a.batch
    count += 1
    return slice(start, start + a.batch)


def torch_peer():
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers, channels = [], 3
    for size in LAYERS:
        if size == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, size, 3, padding=1, bias=False), nn.BatchNorm2d(size), nn.ReLU(inplace=True)]
            nn.init.xavier_uniform_(layers[-3].weight)
            channels = size
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))
    x, y = torch.from_numpy(X).permute(0, 3, 1, 2), torch.from_numpy(Y).long()
    if a.variant.endswith("channels-last"):
        model = model.to(memory_format=torch.channels_last)
    else:
        x = x.contiguous()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loss_of = nn.CrossEntropyLoss()
    forward = torch.compile(model) if "compile" in a.variant else model

    def step():
        at = rows()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(forward(x[at]), y[at])
        loss.backward()
        optimizer.step()
        return loss.item()

    run.time(step, a.steps, a.repeats)


def jax_peer():
    import functools

    import jax
    import jax.numpy as jnp

    convs, statistics, channels = [], [], 3
    for size in LAYERS:
        if size != "pool":
            limit = np.sqrt(6 / (9 * (channels + size)))
            kernel = rng.uniform(-limit, limit, (3, 3, channels, size)).astype(np.float32)
            convs.append((jnp.asarray(kernel), jnp.ones(size), jnp.zeros(size)))
            statistics.append((jnp.zeros(size), jnp.ones(size)))
            channels = size
    limit = np.sqrt(6 / (channels + CLASSES))
    head = (jnp.asarray(rng.uniform(-limit, limit, (channels, CLASSES)).astype(np.float32)), jnp.zeros(CLASSES))

    def loss_of(weights, statistics, x, y):
        convs, head = weights
        numbered, kept = iter(zip(convs, statistics)), []
        for size in LAYERS:
            if size == "pool":
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
                continue
            (kernel, gamma, beta), (mean, variance) = next(numbered)
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            now = x.mean((0, 1, 2)), x.var((0, 1, 2))
            kept.append((0.9 * mean + 0.1 * now[0], 0.9 * variance + 0.1 * now[1]))
            x = jax.nn.relu((x - now[0]) * (jax.lax.rsqrt(now[1] + 1e-5) * gamma) + beta)
        z = x.mean((1, 2)) @ head[0] + head[1]
        return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1).mean(), kept

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state, x, y):
        w, m, v, t, statistics = state
        (loss, statistics), g = jax.value_and_grad(loss_of, has_aux=True)(w, statistics, x, y)
        t = t + 1
        rate = 1e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        w = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-7), w, m, v)
        return (w, m, v, t, statistics), loss

    weights = (convs, head)
    zeros = lambda: jax.tree.map(jnp.zeros_like, weights)
    state = [(weights, zeros(), zeros(), jnp.zeros((), jnp.int32), statistics)]

    def step():
        at = rows()
        state[0], loss = train(state[0], X[at], Y[at])
        return float(loss)

    run.time(step, a.steps, a.repeats)


def keras_peer():
    measure.quiet()
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    L = keras.layers
    layers = [L.Input((a.image, a.image, 3))]
    for size in LAYERS:
        if size == "pool":
            layers.append(L.MaxPooling2D())
        else:
            layers += [L.Conv2D(size, 3, padding="same", use_bias=False), L.BatchNormalization(epsilon=1e-5), L.ReLU()]
    model = keras.Sequential([*layers, L.GlobalAveragePooling2D(), L.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=a.variant == "keras-jit")
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(a.batch, drop_remainder=True).repeat().prefetch(2)
    run.time_fit(model, data, a.steps, a.repeats)


{"torch": torch_peer, "jax": jax_peer, "keras": keras_peer}[a.variant.split("-")[0]]()
run.finish(a.batch)
