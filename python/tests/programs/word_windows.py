"""Next letters of a text from windows of it: `window`, `flat_map`, `batch`, an embedding by hand."""

import numpy as np


def main(tf):
    text = "the plimsoll line on a ship's hull says how deep she may lie " * 4
    letters = sorted(set(text))
    codes = np.array([letters.index(c) for c in text], "int64")
    windows = tf.data.Dataset.from_tensor_slices(codes).window(9, shift=3, drop_remainder=True)
    windows = windows.flat_map(lambda w: w.batch(9))
    data = windows.map(lambda w: (w[:-1], w[-1])).batch(16, drop_remainder=True)
    rng = np.random.default_rng(3)
    table = tf.Variable(rng.normal(scale=0.1, size=(len(letters), 8)).astype("float32"))
    out = tf.Variable(rng.normal(scale=0.1, size=(64, len(letters))).astype("float32"))
    losses = []
    for _ in range(2):
        for x, y in data:
            with tf.GradientTape() as tape:
                hidden = tf.tanh(tf.reshape(tf.gather(table, x), (-1, 64)))
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=hidden @ out))
            for v, g in zip([table, out], tape.gradient(loss, [table, out])):
                v.assign_sub(tf.convert_to_tensor(g) * 1.0)
            losses.append(float(loss))
    return {"losses": losses, "count": len(losses)}
