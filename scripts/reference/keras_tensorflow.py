"""Writes python/tests/fixtures/keras_tensorflow.json: losses of Keras programs trained on the TensorFlow backend.

    KERAS_BACKEND=tensorflow python scripts/reference/keras_tensorflow.py
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import keras  # noqa: E402
import programs  # noqa: E402
import tensorflow as tf  # noqa: E402

assert keras.config.backend() == "tensorflow", "run with KERAS_BACKEND=tensorflow"
found = {
    "made by": f"keras {keras.__version__} on tensorflow {tf.__version__}",
    "losses": {name: programs.losses(keras, name) for name in programs.PROGRAMS},
}
path = ROOT / "python" / "tests" / "fixtures" / "keras_tensorflow.json"
path.write_text(json.dumps(found, indent=1) + "\n")
