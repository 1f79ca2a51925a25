"""Two players with gradients of their own in one traced step, fed by `from_generator`."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(12)
    of = lambda *size: tf.Variable(rng.normal(scale=0.5, size=size).astype("float32"))
    make, judge = [of(2, 8), of(8, 2)], [of(2, 8), of(8, 1)]
    net = lambda p, x: tf.matmul(tf.nn.leaky_relu(tf.matmul(x, p[0])), p[1])
    loss_of = lambda truth, logits: tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=truth, logits=logits))

    def batches():
        draw = np.random.default_rng(13)
        for _ in range(20):
            yield draw.normal(2, 0.5, (16, 2)), draw.normal(size=(16, 2))

    spec = (tf.TensorSpec((16, 2), tf.float32), tf.TensorSpec((16, 2), tf.float32))
    data = tf.data.Dataset.from_generator(batches, output_signature=spec).prefetch(2)

    @tf.function
    def step(real, noise):
        with tf.GradientTape() as for_make, tf.GradientTape() as for_judge:
            made = net(make, noise)
            yes, no = net(judge, real), net(judge, made)
            judge_loss = loss_of(tf.ones_like(yes), yes) + loss_of(tf.zeros_like(no), no)
            make_loss = loss_of(tf.ones_like(no), no)
        gm, gj = for_make.gradient(make_loss, make), for_judge.gradient(judge_loss, judge)
        for v, g in zip(make + judge, gm + gj):
            v.assign_sub(0.05 * g)
        return make_loss, judge_loss

    losses = [[float(v) for v in step(real, noise)] for real, noise in data]
    return {"losses": losses}
