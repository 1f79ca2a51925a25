"""`compile` and `fit` on a data set, with validation and a callback."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(10)
    x = rng.normal(size=(160, 6, 6, 1)).astype("float32")
    y = (x.sum((1, 2, 3)) > 0).astype("float32")
    model = tf.keras.Sequential(
        [
            tf.keras.Input((6, 6, 1)),
            tf.keras.layers.Conv2D(4, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.set_weights([rng.normal(scale=0.3, size=w.shape).astype("float32") for w in model.get_weights()])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1, momentum=0.9), loss="binary_crossentropy", metrics=["accuracy"])
    data = tf.data.Dataset.from_tensor_slices((x, y))
    seen = []
    note = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    history = model.fit(data.take(128).batch(32), validation_data=data.skip(128).batch(32), epochs=3, verbose=0, callbacks=[note])
    loss, accuracy = model.evaluate(data.batch(40), verbose=0)
    return {"history": {k: list(map(float, v)) for k, v in sorted(history.history.items())}, "loss": loss, "accuracy": accuracy, "seen": seen}
