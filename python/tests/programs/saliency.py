"""Gradients with respect to an image, second derivatives and a jacobian, through a small convolution."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(4)
    image = tf.constant(rng.normal(size=(1, 8, 8, 2)).astype("float32"))
    kernel = tf.constant(rng.normal(size=(3, 3, 2, 4)).astype("float32") * 0.3)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(image)
        maps = tf.nn.relu(tf.nn.conv2d(image, kernel, strides=2, padding="SAME"))
        pooled = tf.reduce_mean(maps, axis=[1, 2])
        score = tf.reduce_max(pooled)
    jacobian = tape.jacobian(pooled, image)
    x = tf.Variable(1.5)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = tf.sin(x) * tf.exp(x)
        first = inner.gradient(y, x)
    return {
        "score": float(score),
        "saliency": tape.gradient(score, image).numpy().ravel().tolist(),
        "maps": tape.gradient(score, maps).numpy().ravel().tolist(),
        "jacobian": jacobian.numpy().ravel()[:40].tolist(),
        "first": float(first),
        "second": float(outer.gradient(first, x)),
    }
