"""Training curves of the four benchmark workloads at reduced size, computed by PyTorch.

    python workloads.py [w1 w4 w5 w6]

Each workload is trained for 20 steps from weights, inputs and labels made by `streams.py`, and
written to its own file: the loss of every step, and for every weight its sum and sum of squares
before and after. Everything is computed twice, in float32 and in float64 from the same float32
start: how far the two curves are apart tells how close another float32 implementation can
be expected to come.

Layouts are Keras's, not PyTorch's: matrices are [in, out], convolution kernels
[height, width, in, out], images [batch, height, width, channels]. The weights are kept that way
and turned around at each use, which changes nothing for the optimizers: they work element by
element.

Step `k` trains on rows `b * batch` to `(b + 1) * batch` of the inputs, where `b = k % batches`.
"""

import sys

import numpy as np
import torch
from torch.nn import functional as F

from streams import Case, array, write

STEPS = 20
UNIT_VARIANCE = 1.732  # a uniform stream of this scale has variance 1

ADAM = {"name": "Adam", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0,
        "amsgrad": False}
ADAMW = ADAM | {"name": "AdamW", "lr": 3e-4, "weight_decay": 0.1}
SGD = {"name": "SGD", "lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0,
       "nesterov": False}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or ["w1", "w4", "w5", "w6"]:
        case, loss, about = {"w1": w1, "w4": w4, "w5": w5, "w6": w6}[name]()
        run(case, loss)
        write(f"{name}.json", about, [torch, np], [case])


def run(case, loss):
    """Trains the case in both precisions and records what came out."""
    losses, before, after = train(case, loss, torch.float32)
    losses64, _, after64 = train(case, loss, torch.float64)
    case.expect("losses", np.array(losses))
    case.expect("losses_float64", np.array(losses64))
    # One row per weight, in the order of the weights: sum and sum of squares, in float64.
    case.expect("initial_checksums", before)
    case.expect("final_checksums", after)
    case.expect("final_checksums_float64", after64)


def train(case, loss, dtype):
    def tensor(spec):
        values = torch.from_numpy(array(spec))
        return values.to(dtype) if values.is_floating_point() else values.long()

    weights = {spec["name"]: tensor(spec) for spec in case.weights}
    trainable = [weights[spec["name"]].requires_grad_()
                 for spec in case.weights if spec.get("trainable", True)]
    inputs = [tensor(spec) for spec in case.inputs]
    settings = dict(case.config["optimizer"])
    optimizer = getattr(torch.optim, settings.pop("name"))(trainable, **settings)
    batch, batches = case.config["batch"], case.config["batches"]

    before, losses = checksums(weights), []
    for step in range(STEPS):
        start = step % batches * batch
        optimizer.zero_grad(set_to_none=True)
        value = loss(weights, *(x[start:start + batch] for x in inputs))
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses, before, checksums(weights)


def checksums(weights):
    arrays = [w.detach().double() for w in weights.values()]
    return np.array([[a.sum().item(), a.square().sum().item()] for a in arrays])


def dense(case, name, n_in, n_out, scale, bias=True):
    case.weight(f"{name}/kernel", [n_in, n_out], scale)
    if bias:
        case.weight(f"{name}/bias", [n_out], 0.05)


def norm(case, name, n):
    case.weight(f"{name}/gamma", [n], 0.1, 1.0)
    case.weight(f"{name}/beta", [n], 0.1)


def linear(p, name, x):
    return x @ p[f"{name}/kernel"] + p[f"{name}/bias"]


def w1():
    case = Case("w1", features=1000, hidden=128, batch=32, batches=4, optimizer=ADAM,
                loss="mean binary cross-entropy of sigmoid outputs")
    dense(case, "hidden", 1000, 128, 0.073)
    dense(case, "output", 128, 1, 0.216)
    case.uniform("x", [128, 1000], UNIT_VARIANCE)
    case.integers("y", [128, 1], 2)

    def loss(p, x, y):
        h = torch.relu(linear(p, "hidden", x))
        return F.binary_cross_entropy(torch.sigmoid(linear(p, "output", h)), y.to(x.dtype))

    return case, loss, ("An MLP, 1000 -> 128 ReLU -> 1 sigmoid, at the full size of the benchmark "
                        "(which has 200000 rows instead of 128).")


def w4():
    channels = [3, 8, 8, "pool", 16, 16, "pool", 32]
    bn = {"eps": 1e-5, "momentum": 0.1,
          "running_mean": "(1 - momentum) * running + momentum * batch mean",
          "running_variance": "(1 - momentum) * running + momentum * batch variance * n / (n - 1)",
          "initial_running_mean": 0.0, "initial_running_variance": 1.0}
    case = Case("w4", image=[16, 16, 3], layers=channels[1:], classes=10, kernel=[3, 3],
                padding="same", conv_bias=False, pool={"kind": "max", "size": [2, 2], "stride": 2},
                batch_norm=bn, batch=8, batches=4, optimizer=ADAM,
                loss="mean cross-entropy of logits")
    n_in, convs = 3, 0
    for n_out in channels[1:]:
        if n_out == "pool":
            continue
        case.weight(f"conv{convs}/kernel", [3, 3, n_in, n_out], round((6 / (9 * n_in)) ** 0.5, 3))
        norm(case, f"norm{convs}", n_out)
        case.weight(f"norm{convs}/running_mean", [n_out], 0.0, trainable=False)
        case.weight(f"norm{convs}/running_variance", [n_out], 0.0, 1.0, trainable=False)
        n_in, convs = n_out, convs + 1
    dense(case, "output", n_in, 10, 0.25)
    case.uniform("x", [32, 16, 16, 3], UNIT_VARIANCE)
    case.integers("y", [32], 10)

    def loss(p, x, y):
        x, j = x.permute(0, 3, 1, 2), 0
        for layer in channels[1:]:
            if layer == "pool":
                x = F.max_pool2d(x, 2)
                continue
            x = F.conv2d(x, p[f"conv{j}/kernel"].permute(3, 2, 0, 1), padding=1)
            x = F.batch_norm(x, p[f"norm{j}/running_mean"], p[f"norm{j}/running_variance"],
                             p[f"norm{j}/gamma"], p[f"norm{j}/beta"], training=True,
                             momentum=bn["momentum"], eps=bn["eps"])
            x, j = torch.relu(x), j + 1
        return F.cross_entropy(linear(p, "output", x.mean((2, 3))), y)

    return case, loss, ("A CNN: 3x3 convolutions, each with batch norm and ReLU, two max-pools, "
                        "global average pooling, a dense layer. The benchmark has 32x32x3 images, "
                        "32-32-64-64-128 channels and batch 64.")


def w5():
    vocab, d, n_layers, heads, context = 128, 32, 2, 4, 16
    case = Case("w5", vocab=vocab, d_model=d, layers=n_layers, heads=heads, context=context,
                activation="gelu, tanh approximation", layer_norm_eps=1e-5, batch=4, batches=4,
                optimizer=ADAMW, loss="mean cross-entropy of logits over all positions")
    scale = round((3 / d) ** 0.5, 3)
    case.weight("token_embedding", [vocab, d], 0.035)
    case.weight("position_embedding", [context, d], 0.035)
    for i in range(n_layers):
        norm(case, f"block{i}/norm1", d)
        dense(case, f"block{i}/qkv", d, 3 * d, scale)
        dense(case, f"block{i}/projection", d, d, scale)
        norm(case, f"block{i}/norm2", d)
        dense(case, f"block{i}/up", d, 4 * d, scale)
        dense(case, f"block{i}/down", 4 * d, d, round((3 / (4 * d)) ** 0.5, 3))
    norm(case, "norm", d)
    dense(case, "head", d, vocab, scale, bias=False)
    case.integers("tokens", [16, context + 1], vocab)

    def layer_norm(p, name, x):
        return F.layer_norm(x, [d], p[f"{name}/gamma"], p[f"{name}/beta"], 1e-5)

    def attention(p, name, x):
        # The columns of the fused kernel are q, k and v, each ordered [head, position in head].
        qkv = linear(p, f"{name}/qkv", x).view(*x.shape[:2], 3, heads, d // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return linear(p, f"{name}/projection", y.transpose(1, 2).reshape(x.shape))

    def loss(p, tokens):
        x = p["token_embedding"][tokens[:, :-1]] + p["position_embedding"]
        for i in range(n_layers):
            x = x + attention(p, f"block{i}", layer_norm(p, f"block{i}/norm1", x))
            h = linear(p, f"block{i}/up", layer_norm(p, f"block{i}/norm2", x))
            x = x + linear(p, f"block{i}/down", F.gelu(h, approximate="tanh"))
        logits = layer_norm(p, "norm", x) @ p["head/kernel"]
        return F.cross_entropy(logits.reshape(-1, vocab), tokens[:, 1:].reshape(-1))

    return case, loss, ("A GPT: pre-norm blocks, causal attention, learned positions, an untied "
                        "head without bias; AdamW decays every weight, biases and norms included. "
                        "Position t of `tokens` predicts position t + 1. The benchmark has "
                        "vocabulary 8192, d_model 256, 4 layers, context 256 and batch 8.")


def w6():
    n_layers, width, batch = 24, 64, 64
    case = Case("w6", layers=n_layers, width=width, batch=batch, batches=1, optimizer=SGD,
                loss="mean squared error over all elements")
    for i in range(n_layers):
        dense(case, f"dense{i}", width, width, round((6 / width) ** 0.5, 3))
    case.uniform("x", [batch, width], UNIT_VARIANCE)
    case.uniform("y", [batch, width], UNIT_VARIANCE)

    def loss(p, x, y):
        for i in range(n_layers):
            x = torch.relu(linear(p, f"dense{i}", x))
        return F.mse_loss(x, y)

    return case, loss, ("A deep MLP of equal ReLU layers (the last one too), trained on one batch. "
                        "The benchmark has width 2048 and batch 4096.")


if __name__ == "__main__":
    main()
