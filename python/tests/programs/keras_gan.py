"""A model without `call`, whose own `train_step` changes one player before it takes the gradients of the other."""

import numpy as np


def main(tf):
    keras = tf.keras
    layers = keras.layers
    rng = np.random.default_rng(21)

    class Game(keras.Model):
        def __init__(self):
            super().__init__()
            self.judge = keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.LeakyReLU(negative_slope=0.2), layers.Dense(1)])
            self.maker = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(6)])
            self.judge_mean, self.maker_mean = keras.metrics.Mean(name="judge"), keras.metrics.Mean(name="maker")

        def compile(self, judge_optimizer, maker_optimizer, loss):
            super().compile()
            self.judge_optimizer, self.maker_optimizer, self.of = judge_optimizer, maker_optimizer, loss

        @property
        def metrics(self):
            return [self.judge_mean, self.maker_mean]

        def train_step(self, data):
            real, noise = data
            rows = tf.shape(real)[0]
            both = tf.concat([self.maker(noise), real], axis=0)
            truth = tf.concat([tf.ones((rows, 1)), tf.zeros((rows, 1))], axis=0)
            with tf.GradientTape() as tape:
                loss = self.of(truth, self.judge(both))
            weights = self.judge.trainable_weights
            self.judge_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            with tf.GradientTape() as tape:
                fooled = self.of(tf.zeros((rows, 1)), self.judge(self.maker(noise)))
            weights = self.maker.trainable_weights
            self.maker_optimizer.apply_gradients(zip(tape.gradient(fooled, weights), weights))
            self.judge_mean.update_state(loss)
            self.maker_mean.update_state(fooled)
            return {"judge": self.judge_mean.result(), "maker": self.maker_mean.result()}

    game = Game()
    for player in (game.judge, game.maker):
        player.set_weights([rng.normal(scale=0.4, size=w.shape).astype("float32") for w in player.get_weights()])
    # A step whose moments are small differs by rounding alone in a sign otherwise.
    optimizer = lambda: keras.optimizers.Adam(1e-2, epsilon=1e-3)
    game.compile(optimizer(), optimizer(), keras.losses.BinaryCrossentropy(from_logits=True))
    real, noise = rng.normal(1, 0.5, (96, 6)).astype("float32"), rng.normal(size=(96, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((real, noise)).batch(20)
    history = game.fit(data, epochs=4, verbose=0).history
    return {**history, "weights": [w.ravel().tolist() for w in game.maker.get_weights()]}
