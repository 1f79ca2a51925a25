"""Small Keras programs with fixed weights and data, the same on every backend: what training them gives is compared."""

import numpy as np


def weights_of(model):
    """Weights drawn by NumPy in place of the initial ones, which differ from backend to backend."""
    rng = np.random.default_rng(7)
    new = []
    for variable in model.weights:
        shape = tuple(variable.shape)
        name = variable.path.split("/")[-1]
        if "seed" in name:
            new.append(np.array(variable))
        elif name in ("gamma", "moving_variance"):
            new.append(np.ones(shape, "float32"))
        elif len(shape) < 2:
            new.append(np.zeros(shape, "float32"))
        else:
            fan_in = int(np.prod(shape[:-1]))
            new.append((rng.standard_normal(shape) / np.sqrt(fan_in)).astype("float32"))
    model.set_weights(new)


def mlp(keras):
    layers = keras.layers
    model = keras.Sequential([keras.Input((20,)), layers.Dense(32, activation="relu"), layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=["accuracy"])
    rng = np.random.default_rng(1)
    x = rng.standard_normal((160, 20)).astype("float32")
    return model, x, x[:, :5].argmax(axis=1)


def cnn(keras):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, strides=2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)
    model.compile(optimizer=optimizer, loss="categorical_crossentropy", metrics=["accuracy"])
    rng = np.random.default_rng(2)
    x = rng.standard_normal((160, 12, 12, 3)).astype("float32")
    return model, x, np.eye(4, dtype="float32")[np.arange(160) % 4]


def lstm(keras):
    layers = keras.layers
    inputs = keras.Input((9,), dtype="int32")
    h = layers.Embedding(30, 12, mask_zero=True)(inputs)
    h = layers.Bidirectional(layers.LSTM(10, return_sequences=True))(h)
    h = layers.GRU(8)(h)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(h))
    # TensorFlow gives an embedding a sparse gradient, whose duplicate rows its adaptive optimizers square one by one; plain
    # descent is the same for both.
    model.compile(optimizer=keras.optimizers.SGD(0.5, clipvalue=0.5), loss="binary_crossentropy", metrics=["mae"])
    rng = np.random.default_rng(3)
    x = rng.integers(0, 30, (160, 9)).astype("int32")
    return model, x, (x.sum(axis=1, keepdims=True) > 130).astype("float32")


def attention(keras):
    layers = keras.layers
    inputs = keras.Input((10, 16))
    h = layers.MultiHeadAttention(4, 8)(inputs, inputs, use_causal_mask=True)
    h = layers.LayerNormalization()(inputs + h)
    h = layers.Dense(32, activation="gelu")(h)
    model = keras.Model(inputs, layers.Dense(3)(layers.Flatten()(h)))
    optimizer = keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(1e-2, 20), clipnorm=1.0)
    model.compile(optimizer=optimizer, loss="mse")
    rng = np.random.default_rng(4)
    x = rng.standard_normal((160, 10, 16)).astype("float32")
    return model, x, x[:, :3, :].mean(axis=-1)


PROGRAMS = {"mlp": mlp, "cnn": cnn, "lstm": lstm, "attention": attention}


def losses(keras, name, steps=10, batch=16):
    """The loss before each of the first steps."""
    model, x, y = PROGRAMS[name](keras)
    weights_of(model)
    found = []
    for step in range(steps):
        rows = slice(step * batch, (step + 1) * batch)
        found.append(float(model.train_on_batch(x[rows], y[rows], return_dict=True)["loss"]))
    return found
