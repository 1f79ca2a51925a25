"""`tf.mixed_precision`: policies are Keras'."""


def __getattr__(name):
    import plimsoll

    return getattr(plimsoll.keras.mixed_precision, name)
