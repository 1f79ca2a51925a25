"""A Keras model with weights given, trained by a hand-written loop with an optimizer and a metric."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(9)
    x = rng.normal(size=(256, 12)).astype("float32")
    y = (x[:, 0] * x[:, 1] > 0).astype("int64")
    model = tf.keras.Sequential([tf.keras.Input((12,)), tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(2)])
    model.set_weights([rng.normal(scale=0.3, size=w.shape).astype("float32") for w in model.get_weights()])
    optimizer = tf.keras.optimizers.Adam(0.01)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    losses = []
    for _ in range(2):
        for xb, yb in tf.data.Dataset.from_tensor_slices((x, y)).batch(64):
            with tf.GradientTape() as tape:
                logits = model(xb, training=True)
                loss = loss_of(yb, logits)
            gradients = tape.gradient(loss, model.trainable_variables)
            gradients, norm = tf.clip_by_global_norm(gradients, 0.5)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            accuracy.update_state(yb, logits)
            losses += [float(loss), float(norm)]
    return {"losses": losses, "accuracy": float(accuracy.result())}
