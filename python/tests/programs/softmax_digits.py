"""Softmax regression on small synthetic digits, fed by a pipeline in order, with a traced step."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(10, 64))
    labels = rng.integers(0, 10, 600)
    images = ((centres[labels] + rng.normal(scale=1.5, size=(600, 64))) * 20 + 120).clip(0, 255).astype("uint8")
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)).batch(50)
    w, b = tf.Variable(tf.zeros((64, 10))), tf.Variable(tf.zeros((10,)))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            logits = tf.matmul(x, w) + b
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        for v, g in zip([w, b], tape.gradient(loss, [w, b])):
            v.assign_sub(0.5 * g)
        right = tf.equal(tf.argmax(logits, axis=1), y)
        return loss, tf.reduce_mean(tf.cast(right, tf.float32))

    losses, rights = [], []
    for _ in range(3):
        for x, y in data:
            loss, right = step(x, y)
            losses.append(float(loss))
            rights.append(float(right))
    return {"losses": losses, "rights": rights}
