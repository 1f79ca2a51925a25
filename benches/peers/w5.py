"""W5: a GPT of 7.4 million parameters. Vocabulary 8192, width 256, 4 blocks with 4 heads, context 256, batches of 8,
AdamW(3e-4, decay 0.1). Norm before each part of a block, causal attention, GELU in its tanh form, learned
positions, a head without bias that is not tied to the embedding. 8 batches of random tokens in turn.
"""

import numpy as np

import measure

VARIANTS = ["torch", "torch-compile", "torch-checkpoint", "jax", "jax-checkpoint", "keras", "keras-jit"]
sizes = dict(batch=8, vocabulary=8192, width=256, blocks=4, heads=4, context=256)
a = measure.arguments(__doc__, VARIANTS, steps=4, repeats=5, **sizes)
run = measure.Run("W5", a.variant)
B, V, D, H, T = a.batch, a.vocabulary, a.width, a.heads, a.context
BATCHES = 8
rng = np.random.default_rng(0)
TOKENS = rng.integers(0, V, (BATCHES * B, T + 1)).astype(np.int32)
count = 0


def rows():
    """The rows of the next batch."""
    global count
    start = count % BATCHES * B
    count += 1
    return slice(start, start + B)


def torch_peer():
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)

    def linear(n_in, n_out, bias=True):
        layer = nn.Linear(n_in, n_out, bias=bias)
        nn.init.xavier_uniform_(layer.weight)
        if bias:
            nn.init.zeros_(layer.bias)
        return layer

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
            self.qkv, self.projection = linear(D, 3 * D), linear(D, D)
            self.up, self.down = linear(D, 4 * D), linear(4 * D, D)

        def forward(self, x):
            qkv = self.qkv(self.norm1(x)).view(B, T, 3, H, D // H)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(y.transpose(1, 2).reshape(B, T, D))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(V, D)
            nn.init.normal_(self.tokens.weight, std=0.02)
            self.positions = nn.Parameter(torch.randn(T, D) * 0.02)
            self.blocks = nn.ModuleList(Block() for _ in range(a.blocks))
            self.norm, self.head = nn.LayerNorm(D), linear(D, V, bias=False)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.positions
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if a.variant == "torch-checkpoint" else block(x)
            return self.head(self.norm(x))

    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    forward = torch.compile(model) if a.variant == "torch-compile" else model
    tokens = torch.from_numpy(TOKENS).long()

    def step():
        batch = tokens[rows()]
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(forward(batch[:, :-1]).view(-1, V), batch[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    run.time(step, a.steps, a.repeats)


def jax_peer():
    import functools

    import jax
    import jax.numpy as jnp

    def normal(*shape):
        return jnp.asarray(0.02 * rng.standard_normal(shape, dtype=np.float32))

    def kernel(n_in, n_out):
        limit = np.sqrt(6 / (n_in + n_out))
        return jnp.asarray(rng.uniform(-limit, limit, (n_in, n_out)).astype(np.float32))

    def linear(n_in, n_out):
        return kernel(n_in, n_out), jnp.zeros(n_out)

    def norm():
        return jnp.ones(D), jnp.zeros(D)

    def block():
        return {"norm1": norm(), "norm2": norm(), "qkv": linear(D, 3 * D), "projection": linear(D, D),
                "up": linear(D, 4 * D), "down": linear(4 * D, D)}

    weights = {"tokens": normal(V, D), "positions": normal(T, D), "norm": norm(), "head": kernel(D, V),
               "blocks": [block() for _ in range(a.blocks)]}

    def dense(x, w):
        return x @ w[0] + w[1]

    def normed(x, w):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[0] + w[1]

    def apply(x, b):
        q, k, v = jnp.moveaxis(dense(normed(x, b["norm1"]), b["qkv"]).reshape(B, T, 3, H, D // H), 2, 0)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(B, T, D)
        x = x + dense(y, b["projection"])
        return x + dense(jax.nn.gelu(dense(normed(x, b["norm2"]), b["up"]), approximate=True), b["down"])

    if a.variant == "jax-checkpoint":
        apply = jax.checkpoint(apply)

    def loss_of(w, tokens):
        x = w["tokens"][tokens[:, :-1]] + w["positions"]
        for b in w["blocks"]:
            x = apply(x, b)
        logs = jax.nn.log_softmax(normed(x, w["norm"]) @ w["head"])
        return -jnp.take_along_axis(logs, tokens[:, 1:, None], -1).mean()

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state, tokens):
        w, m, v, t = state
        loss, g = jax.value_and_grad(loss_of)(w, tokens)
        t = t + 1
        c1, c2 = 1 - 0.9**t, 1 - 0.999**t
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        change = lambda w, m, v: w * (1 - 3e-4 * 0.1) - 3e-4 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8)
        return (jax.tree.map(change, w, m, v), m, v, t), loss

    zeros = lambda: jax.tree.map(jnp.zeros_like, weights)
    state = [(weights, zeros(), zeros(), jnp.zeros((), jnp.int32))]

    def step():
        state[0], loss = train(state[0], TOKENS[rows()])
        return float(loss)

    run.time(step, a.steps, a.repeats)


def keras_peer():
    measure.quiet()
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    L, normal = keras.layers, keras.initializers.RandomNormal(stddev=0.02)

    class Positions(L.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(T, D), initializer=normal)

        def call(self, x):
            return x + self.table

    def norm(x):
        return L.LayerNormalization(epsilon=1e-5)(x)

    def gelu(x):
        return keras.activations.gelu(x, approximate=True)

    tokens = L.Input((T,), dtype="int32")
    x = Positions()(L.Embedding(V, D, embeddings_initializer=normal)(tokens))
    for _ in range(a.blocks):
        h = norm(x)
        x = L.Add()([x, L.MultiHeadAttention(H, D // H)(h, h, use_causal_mask=True)])
        x = L.Add()([x, L.Dense(D)(L.Dense(4 * D, gelu)(norm(x)))])
    model = keras.Model(tokens, L.Dense(V, use_bias=False)(norm(x)))
    optimizer = keras.optimizers.AdamW(3e-4, weight_decay=0.1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=a.variant == "keras-jit")
    data = tf.data.Dataset.from_tensor_slices((TOKENS[:, :-1], TOKENS[:, 1:]))
    run.time_fit(model, data.batch(B, drop_remainder=True).repeat().prefetch(2), a.steps, a.repeats)


{"torch": torch_peer, "jax": jax_peer, "keras": keras_peer}[a.variant.split("-")[0]]()
run.finish(B)
