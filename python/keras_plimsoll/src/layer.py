"""What a layer on this backend has beyond Keras' own: nothing, variables carry the state."""


class PlimsollLayer:
    """The base of `keras.Layer` on this backend."""
