"""What Keras computes for layers, losses, optimizers, metrics and short trainings.

    python layers.py [layers losses optimizers metrics training]

Writes one reference file per word. Weights and inputs come from `streams.py`, so the files hold
results only. This file has the layers; the other words have a file of that name beside this one.

Of each layer are recorded the output, and the gradients of `sum(output * output_grad)` with
respect to every float input and every trainable weight, where `output_grad` is a stream too.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

from describe import assign_weights, describe_weights, settings
from streams import Case, integers, uniform, values, write


def main():
    import losses
    import metrics
    import optimizers
    import training

    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    files = {
        "layers": (cases, "Outputs and gradients of Keras layers."),
        "losses": (losses.cases, "Values of Keras losses and their gradients."),
        "optimizers": (optimizers.cases, "Updates of Keras optimizers for given gradients, and "
                                         "learning-rate schedules."),
        "metrics": (metrics.cases, "Keras metrics, accumulated over batches."),
        "training": (training.cases, "Losses and final weights of ten training steps in Keras."),
    }
    for name in sys.argv[1:] or files:
        make, about = files[name]
        write(f"{name}.json", about, [keras, tf, np], make())


def cases():
    return (dense() + conv() + conv_transpose() + pooling() + normalization() + embedding()
            + attention() + recurrent())


def record(name, layer, inputs, training=False, call=None, **config):
    """Runs a layer on the streams described by `inputs` and records a case.

    `inputs` maps a name to a function from (case, name) to an array; the first is given to
    the layer by position, the others by name. `call` replaces that way of calling.
    """
    case = Case(name, **(settings(layer) | config | {"training": training}))
    given = {key: tf.convert_to_tensor(make(case, key)) for key, make in inputs.items()}

    def positional(first, **others):
        return layer(first, training=training, **others)

    def forward():
        first, *others = given
        outputs = (call or positional)(given[first], **{key: given[key] for key in others})
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    forward()
    names = describe_weights(case, layer)
    assign_weights(case, layer.weights)
    shapes = [output.shape for output in forward()]
    names_out = ["output"] if len(shapes) == 1 else [f"output{i}" for i in range(len(shapes))]
    grads_out = [case.uniform(f"{key}_grad", shape) for key, shape in zip(names_out, shapes)]
    assign_weights(case, layer.weights)  # the calls above may have moved running statistics
    sources = {key: x for key, x in given.items() if x.dtype == tf.float32}
    with tf.GradientTape() as tape:
        tape.watch(sources)
        outputs = forward()
        total = tf.add_n([tf.reduce_sum(y * g) for y, g in zip(outputs, grads_out)])
    sources |= {key: w.value for key, w in zip(names, layer.weights) if w.trainable}
    grads = tape.gradient(total, sources)
    for key, output in zip(names_out, outputs):
        case.expect(key, output.numpy())
    for key, weight in zip(names, layer.weights):
        if not weight.trainable:
            case.expect(f"after/{key}", weight.numpy())
    for key, grad in grads.items():
        case.expect(f"grad/{key}", tf.convert_to_tensor(grad).numpy())
    return case


def mask(*rows):
    return values(rows, "bool")


def dense():
    scales = {"relu6": 12.0, "hard_sigmoid": 8.0}  # wide enough to reach both ends
    functions = {"gelu_tanh": gelu_tanh, "gelu_erf": "gelu"}
    names = ["linear", "relu", "sigmoid", "tanh", "gelu_tanh", "gelu_erf", "silu", "elu", "selu",
             "softplus", "softsign", "leaky_relu", "relu6", "hard_sigmoid", "softmax",
             "log_softmax", "mish"]
    result = []
    for name in names:
        layer = L.Dense(5, activation=functions.get(name, name))
        x = uniform(3, 4, scale=scales.get(name, 2.0))
        result.append(record(f"dense_{name}", layer, {"x": x}, activation=name))
    result.append(record("dense_three_axes", L.Dense(3), {"x": uniform(2, 3, 4)}))
    result.append(record("dense_no_bias", L.Dense(3, use_bias=False), {"x": uniform(2, 4)}))
    return result


def gelu_tanh(x):
    return keras.activations.gelu(x, approximate=True)


def conv():
    x1, x2, x3 = uniform(2, 7, 2), uniform(2, 5, 6, 2), uniform(2, 4, 5, 3, 2)
    grouped1, grouped2, grouped3 = uniform(2, 5, 4), uniform(2, 4, 4, 4), uniform(1, 3, 3, 3, 4)
    layers = [
        ("conv1d_valid", x1, L.Conv1D(3, 3)),
        ("conv1d_same", x1, L.Conv1D(3, 3, padding="same")),
        ("conv1d_same_even_kernel", x1, L.Conv1D(3, 4, padding="same")),
        ("conv1d_valid_stride", x1, L.Conv1D(3, 3, strides=2)),
        ("conv1d_same_stride", uniform(2, 8, 2), L.Conv1D(3, 3, strides=2, padding="same")),
        ("conv1d_same_dilation", x1, L.Conv1D(3, 3, dilation_rate=2, padding="same")),
        ("conv1d_causal", x1, L.Conv1D(3, 3, padding="causal")),
        ("conv1d_causal_dilation", x1, L.Conv1D(3, 2, dilation_rate=2, padding="causal")),
        ("conv1d_groups", grouped1, L.Conv1D(4, 3, groups=2)),
        ("conv1d_relu", x1, L.Conv1D(3, 2, activation="relu")),
        ("conv2d_valid", x2, L.Conv2D(3, 3)),
        ("conv2d_same", x2, L.Conv2D(3, 3, padding="same")),
        ("conv2d_pointwise", x2, L.Conv2D(3, 1)),
        ("conv2d_oblong_kernel", x2, L.Conv2D(3, (3, 2), padding="same")),
        ("conv2d_valid_stride", x2, L.Conv2D(3, 3, strides=(2, 1))),
        ("conv2d_same_stride", x2, L.Conv2D(3, 3, strides=2, padding="same")),
        ("conv2d_same_stride_over_kernel", x2, L.Conv2D(2, 2, strides=3, padding="same")),
        ("conv2d_valid_dilation", x2, L.Conv2D(3, 2, dilation_rate=2)),
        ("conv2d_same_dilation", x2, L.Conv2D(3, 3, dilation_rate=(1, 2), padding="same")),
        ("conv2d_no_bias", x2, L.Conv2D(2, 3, use_bias=False)),
        ("conv2d_groups", grouped2, L.Conv2D(4, 3, groups=2, padding="same")),
        ("conv2d_groups_stride", grouped2, L.Conv2D(6, 3, groups=2, strides=2, padding="same")),
        ("conv3d_valid", x3, L.Conv3D(2, 2)),
        ("conv3d_same", x3, L.Conv3D(2, (3, 3, 2), padding="same")),
        ("conv3d_same_stride", x3, L.Conv3D(2, 3, strides=2, padding="same")),
        ("conv3d_dilation", uniform(1, 4, 5, 3, 2), L.Conv3D(2, 2, dilation_rate=(2, 2, 1))),
        ("conv3d_groups", grouped3, L.Conv3D(2, 2, groups=2)),
        ("depthwise_conv2d_valid", x2, L.DepthwiseConv2D(3)),
        ("depthwise_conv2d_same", x2, L.DepthwiseConv2D(3, padding="same")),
        ("depthwise_conv2d_multiplier", x2, L.DepthwiseConv2D(2, depth_multiplier=2)),
        ("depthwise_conv2d_same_stride", x2, L.DepthwiseConv2D(3, strides=2, padding="same")),
        ("depthwise_conv2d_dilation", x2,
         L.DepthwiseConv2D(2, dilation_rate=2, padding="same", use_bias=False)),
    ]
    return [record(name, layer, {"x": x}) for name, x, layer in layers]


def conv_transpose():
    x = uniform(2, 3, 4, 2)
    layers = [
        ("conv2d_transpose_valid", L.Conv2DTranspose(3, 3)),
        ("conv2d_transpose_same", L.Conv2DTranspose(3, 3, padding="same")),
        ("conv2d_transpose_valid_stride", L.Conv2DTranspose(3, 3, strides=2)),
        ("conv2d_transpose_same_stride", L.Conv2DTranspose(3, 3, strides=2, padding="same")),
        ("conv2d_transpose_even_kernel", L.Conv2DTranspose(2, 2, strides=2, padding="same")),
        ("conv2d_transpose_stride_over_kernel", L.Conv2DTranspose(2, 2, strides=3)),
        ("conv2d_transpose_oblong", L.Conv2DTranspose(2, (4, 3), strides=(2, 1), padding="same")),
    ]
    return [record(name, layer, {"x": x}) for name, layer in layers]


def pooling():
    shapes = {1: (2, 7, 2), 2: (2, 5, 6, 2), 3: (1, 4, 5, 3, 2)}
    result = []
    for kind, kind_name in (("Max", "max_pool"), ("Average", "average_pool")):
        for rank, shape in shapes.items():
            pool = getattr(L, f"{kind}Pooling{rank}D")
            for padding in ("valid", "same"):
                for suffix, options in (("", {"pool_size": 2}),
                                        ("_overlap", {"pool_size": 3, "strides": 2})):
                    name = f"{kind_name}{rank}d_{padding}{suffix}"
                    layer = pool(padding=padding, **options)
                    result.append(record(name, layer, {"x": uniform(*shape)}))
            pool = getattr(L, f"Global{kind}Pooling{rank}D")
            name = f"global_{kind_name}{rank}d"
            result.append(record(name, pool(), {"x": uniform(*shape)}))
            result.append(record(f"{name}_keepdims", pool(keepdims=True), {"x": uniform(*shape)}))
    x = uniform(2, 5, 4, 1)
    result.append(record("max_pool2d_oblong", L.MaxPooling2D((3, 2), strides=(1, 2)), {"x": x}))
    result.append(record("average_pool2d_oblong",
                         L.AveragePooling2D((3, 2), strides=(1, 2), padding="same"), {"x": x}))
    return result


def normalization():
    flat, image = uniform(4, 3, offset=0.5), uniform(2, 3, 2, 4, offset=0.5)
    bare = {"center": False, "scale": False}
    result = []
    for suffix, x in (("", flat), ("_image", image)):
        for mode, training in (("training", True), ("inference", False)):
            result.append(record(f"batch_norm_{mode}{suffix}", L.BatchNormalization(), {"x": x},
                                 training=training))
    result.append(record("batch_norm_bare", L.BatchNormalization(momentum=0.9, epsilon=1e-5, **bare),
                         {"x": flat}, training=True))
    layers = [
        ("layer_norm", flat, L.LayerNormalization()),
        ("layer_norm_three_axes", uniform(2, 3, 4), L.LayerNormalization(epsilon=1e-5)),
        ("layer_norm_over_two_axes", uniform(2, 3, 4), L.LayerNormalization(axis=[1, 2])),
        ("layer_norm_bare", flat, L.LayerNormalization(**bare)),
        ("group_norm", image, L.GroupNormalization(groups=2)),
        ("group_norm_instance", image, L.GroupNormalization(groups=-1)),
        ("group_norm_one_group", image, L.GroupNormalization(groups=1)),
        ("group_norm_bare", image, L.GroupNormalization(groups=2, **bare)),
        ("rms_norm", flat, L.RMSNormalization()),
        ("rms_norm_three_axes", uniform(2, 3, 4), L.RMSNormalization()),
    ]
    return result + [record(name, layer, {"x": x}) for name, x, layer in layers]


def embedding():
    return [record("embedding", L.Embedding(6, 3), {"x": integers(2, 4, below=6)}),
            record("embedding_one_axis", L.Embedding(6, 3), {"x": integers(5, below=6)})]


def attention():
    """Keras's MultiHeadAttention: kernels [features, heads, size], scores scaled by 1/sqrt(size)."""
    query, value, key = uniform(2, 4, 6), uniform(2, 5, 4), uniform(2, 5, 3)
    # Entry [b, i, j] says whether query i of sample b may look at key j.
    square = mask([[1, 1, 1, 1]] * 4, [[1, 1, 0, 0]] * 4)
    oblong = mask([[1, 1, 1, 1, 0]] * 4, [[1, 1, 0, 0, 0]] * 4)

    def itself(layer, **options):
        return lambda query, **masks: layer(query, query, **masks, **options)

    def other(layer, **options):
        return lambda query, value, **more: layer(query, value, **more, **options)

    def one(name, how, inputs, causal=False, key_dim=3, **options):
        layer = L.MultiHeadAttention(num_heads=2, key_dim=key_dim, **options)
        return record(name, layer, inputs, call=how(layer, use_causal_mask=causal),
                      use_causal_mask=causal, self_attention=how is itself)

    return [
        one("attention_self", itself, {"query": query}),
        one("attention_causal", itself, {"query": query}, causal=True),
        one("attention_padding", itself, {"query": query, "attention_mask": square}),
        one("attention_causal_padding", itself, {"query": query, "attention_mask": square}, True),
        one("attention_cross", other, {"query": query, "value": value}),
        one("attention_cross_padding", other,
            {"query": query, "value": value, "attention_mask": oblong}),
        one("attention_cross_key", other, {"query": query, "value": value, "key": key},
            value_dim=4, output_shape=5),
        one("attention_no_bias", itself, {"query": query}, key_dim=2, use_bias=False),
    ]


def recurrent():
    x = uniform(2, 4, 3)
    padded = mask([1, 1, 1, 1], [1, 1, 0, 0])
    holes = mask([0, 1, 0, 1], [1, 0, 1, 1])
    result = []
    for name, layer in (("lstm", L.LSTM), ("gru", L.GRU), ("simple_rnn", L.SimpleRNN)):
        variants = [
            ("", {}, {}),
            ("_sequences", {"return_sequences": True}, {}),
            ("_backwards", {"go_backwards": True}, {}),
            ("_backwards_sequences", {"go_backwards": True, "return_sequences": True}, {}),
            ("_mask", {}, {"mask": padded}),
            ("_mask_sequences", {"return_sequences": True}, {"mask": padded}),
            ("_mask_holes", {"return_sequences": True}, {"mask": holes}),
            ("_no_bias", {"use_bias": False}, {}),
        ]
        for suffix, options, more in variants:
            result.append(record(name + suffix, layer(3, **options), {"x": x} | more))
        result.append(with_state(f"{name}_state", layer(3, return_state=True), name, x))
    result.append(record("gru_reset_before", L.GRU(3, reset_after=False), {"x": x}))
    result.append(record("lstm_relu", L.LSTM(3, activation="relu", recurrent_activation="tanh"),
                         {"x": x}))
    for merge in ("concat", "sum"):
        for suffix, options, more in (("", {}, {}), ("_sequences", {"return_sequences": True}, {}),
                                      ("_mask", {"return_sequences": True}, {"mask": padded})):
            layer = L.Bidirectional(L.LSTM(2, **options), merge_mode=merge)
            result.append(record(f"bidirectional_{merge}{suffix}", layer, {"x": x} | more))
    return result


def with_state(name, layer, kind, x):
    """An RNN that starts from a given state and returns its last one: output, state, (cell state)."""
    states = ["initial_h", "initial_c"] if kind == "lstm" else ["initial_h"]

    def call(x, **states):
        return layer(x, initial_state=list(states.values()))

    inputs = {"x": x} | {state: uniform(2, 3) for state in states}
    return record(name, layer, inputs, call=call)


if __name__ == "__main__":
    main()
