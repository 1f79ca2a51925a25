"""Ten training steps of tiny Keras models, one per kind of layer. Run by `layers.py`.

All steps use the same whole batch `x`, `y`. Recorded are the loss of each step, taken before its
update, and every weight after the last step. Weight `2/kernel` belongs to layer 2 of the model.
"""

import numpy as np
import tensorflow as tf
from keras import layers as L
from keras import losses, optimizers

from describe import (assign_weights, describe_weights, loss_settings, optimizer_settings,
                      settings)
from streams import Case, integers, uniform

STEPS = 10


def cases():
    rows, image, sequence = uniform(6, 4), uniform(4, 6, 6, 2), uniform(4, 5, 3)
    line, volume, words = uniform(4, 8, 2), uniform(3, 4, 4, 4, 2), integers(4, 5, below=9)
    sgd, adam = optimizers.SGD, optimizers.Adam

    return [
        regression("dense", rows, [L.Dense(5, activation="relu"), L.Dense(2)], sgd(0.1)),
        binary("dense_sigmoid", rows, [L.Dense(5, activation="tanh"),
                                       L.Dense(1, activation="sigmoid")], adam(0.05)),
        classification("conv1d", line, [L.Conv1D(3, 3, padding="same", activation="relu"),
                                        L.MaxPooling1D(2), L.Flatten(), L.Dense(3)], adam(0.02)),
        classification("conv2d", image, [L.Conv2D(3, 3, activation="relu"), L.MaxPooling2D(2),
                                         L.Flatten(), L.Dense(3)],
                       sgd(0.05, momentum=0.9, nesterov=True)),
        classification("conv2d_stride", image, [L.Conv2D(3, 3, strides=2, padding="same"),
                                                L.Activation("elu"), L.GlobalMaxPooling2D(),
                                                L.Dense(3)], optimizers.RMSprop(0.01)),
        classification("conv3d", volume, [L.Conv3D(2, 2, activation="relu"), L.AveragePooling3D(2),
                                          L.Flatten(), L.Dense(3)], adam(0.02)),
        classification("depthwise_conv2d", image,
                       [L.DepthwiseConv2D(3, depth_multiplier=2), L.Activation("silu"),
                        L.GlobalAveragePooling2D(), L.Dense(3)], adam(0.02)),
        regression("conv2d_transpose", uniform(2, 3, 3, 2),
                   [L.Conv2DTranspose(2, 3, strides=2, padding="same", activation="softplus"),
                    L.AveragePooling2D(2), L.Conv2D(1, 1)], adam(0.02)),
        classification("batch_norm", image,
                       [L.Conv2D(3, 3, use_bias=False), L.BatchNormalization(momentum=0.9),
                        L.Activation("relu"), L.GlobalAveragePooling2D(), L.Dense(3)], adam(0.02)),
        regression("layer_norm", rows, [L.Dense(5), L.LayerNormalization(), L.Dense(2)],
                   optimizers.AdamW(0.02, weight_decay=0.05)),
        classification("group_norm", image, [L.Conv2D(4, 3), L.GroupNormalization(groups=2),
                                             L.Activation("gelu"), L.GlobalAveragePooling2D(),
                                             L.Dense(3)], adam(0.02)),
        regression("rms_norm", rows, [L.Dense(5), L.RMSNormalization(), L.Dense(2)],
                   optimizers.Nadam(0.02)),
        classification("embedding", words, [L.Embedding(9, 4), L.GlobalAveragePooling1D(),
                                            L.Dense(3)], optimizers.Adagrad(0.1)),
        classification("lstm", sequence, [L.LSTM(4), L.Dense(3)], adam(0.02)),
        classification("gru", sequence, [L.GRU(4), L.Dense(3)], adam(0.02)),
        classification("simple_rnn", sequence, [L.SimpleRNN(4, return_sequences=True),
                                                L.SimpleRNN(3), L.Dense(3)], sgd(0.1)),
        classification("bidirectional", sequence, [L.Bidirectional(L.LSTM(3)), L.Dense(3)],
                       adam(0.02)),
        # The bias of the keys has no influence and its gradient is rounding noise, which Adam and
        # its relatives would blow up to full steps.
        classification("attention", sequence, [L.MultiHeadAttention(2, 3), L.GlobalAveragePooling1D(),
                                               L.Dense(3)], sgd(0.1, momentum=0.9)),
        classification("attention_no_bias", sequence,
                       [L.MultiHeadAttention(2, 3, use_bias=False), L.GlobalAveragePooling1D(),
                        L.Dense(3)], optimizers.Adamax(0.02)),
    ]


def regression(name, x, layers, optimizer):
    return record(name, x, lambda case, shape: case.uniform("y", shape), layers,
                  losses.MeanSquaredError(), optimizer)


def binary(name, x, layers, optimizer):
    return record(name, x, lambda case, shape: case.integers("y", shape, 2, "float32"), layers,
                  losses.BinaryCrossentropy(), optimizer)


def classification(name, x, layers, optimizer):
    return record(name, x, lambda case, shape: case.integers("y", shape[:-1], shape[-1]), layers,
                  losses.SparseCategoricalCrossentropy(from_logits=True), optimizer)


def record(name, x, y, layers, loss, optimizer):
    case = Case(name, layers=[layer_settings(layer) for layer in layers],
                loss=loss_settings(loss), optimizer=optimizer_settings(optimizer))
    x = tf.constant(x(case, "x"))
    y = y(case, forward(layers, x).shape)
    for i, layer in enumerate(layers):
        describe_weights(case, layer, f"{i}/")
    weights = [weight for layer in layers for weight in layer.weights]
    trainable = [weight for weight in weights if weight.trainable]
    assign_weights(case, weights)

    values = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            value = loss(y, forward(layers, x))
        gradients = tape.gradient(value, [weight.value for weight in trainable])
        optimizer.apply([tf.convert_to_tensor(gradient) for gradient in gradients], trainable)
        values.append(value.numpy())
    case.expect("losses", np.array(values))
    for spec, weight in zip(case.weights, weights):
        case.expect(f"after/{spec['name']}", weight.numpy())
    return case


def forward(layers, x):
    for layer in layers:
        if isinstance(layer, L.MultiHeadAttention):
            x = layer(x, x, use_causal_mask=True, training=True)
        else:
            x = layer(x, training=True)
    return x


def layer_settings(layer):
    config = settings(layer)
    if isinstance(layer, L.MultiHeadAttention):
        config |= {"self_attention": True, "use_causal_mask": True}
    return config
