"""A line fitted by gradient descent, written with a tape and variables."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 1)).astype("float32")
    y = 3 * x + 2 + rng.normal(scale=0.3, size=x.shape).astype("float32")
    w, b = tf.Variable(5.0), tf.Variable(0.0)
    losses = []
    for _ in range(30):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - (w * x + b)))
        dw, db = tape.gradient(loss, [w, b])
        w.assign_sub(0.1 * dw)
        b.assign_sub(0.1 * db)
        losses.append(float(loss))
    return {"losses": losses, "w": float(w), "b": float(b)}
