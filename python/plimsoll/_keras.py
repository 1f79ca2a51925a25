"""`tf.keras`: Keras 3 on this engine, loaded when it is first touched."""

import os
import sys


def load():
    """The module `keras`, with this engine as its backend."""
    if "keras" not in sys.modules:
        chosen = os.environ.setdefault("KERAS_BACKEND", "plimsoll")
        if chosen != "plimsoll":
            raise ImportError(f"KERAS_BACKEND is {chosen!r}: `plimsoll.keras` needs 'plimsoll', or no such variable")
        try:
            from keras_plimsoll import hook
        except ModuleNotFoundError as error:
            raise ImportError("`plimsoll.keras` needs Keras: pip install 'plimsoll[keras]'") from error
        hook.install()
    import keras

    if keras.config.backend() != "plimsoll":
        raise ImportError(
            f"keras was imported before with the backend {keras.config.backend()!r}: set KERAS_BACKEND=plimsoll, "
            "or import plimsoll and touch `plimsoll.keras` first"
        )
    from plimsoll import _keras_names

    _keras_names.add(keras)
    import plimsoll

    plimsoll.keras = keras
    return keras
