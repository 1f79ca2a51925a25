"""The Keras 3 backend that runs on Plimsoll.

`keras_plimsoll.src` holds what Keras asks of a backend, one module per family as in Keras itself: `core`, `numpy`, `nn`,
`math`, `linalg`, `image`, `random`, `rnn`, `trainer`, `layer`, `export`. `keras_plimsoll.hook` brings it into a released
Keras, which has no plug-ins yet. Importing this package imports neither of them, and not Keras.
"""
