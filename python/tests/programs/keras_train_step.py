"""A model with a `train_step` of its own, and a regularised layer."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(11)

    class Noisy(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = tf.keras.layers.Dense(8, activation="relu", kernel_regularizer=tf.keras.regularizers.L2(0.01))
            self.out = tf.keras.layers.Dense(1)
            self.tracker = tf.keras.metrics.Mean(name="loss")

        def call(self, x):
            return self.out(self.hidden(x))

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(y - self(x, training=True))) + tf.add_n(self.losses)
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

        @property
        def metrics(self):
            return [self.tracker]

    x = rng.normal(size=(96, 5)).astype("float32")
    y = (x @ rng.normal(size=(5, 1))).astype("float32")
    model = Noisy()
    model(x[:1])
    model.set_weights([rng.normal(scale=0.4, size=w.shape).astype("float32") for w in model.get_weights()])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.02))
    history = model.fit(x, y, batch_size=32, epochs=4, shuffle=False, verbose=0)
    return {"loss": list(map(float, history.history["loss"])), "prediction": model.predict(x[:3], verbose=0).ravel().tolist()}
