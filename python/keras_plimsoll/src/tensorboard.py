"""The callback `TensorBoard` with our writer of its files: Keras has TensorFlow's, on every backend."""

import types
import warnings

from plimsoll import summary


def callback(original):
    """The callback, which writes by `plimsoll.summary`."""
    original.summary = property(lambda self: summary)
    return original


def model_summary(original):
    """The function that writes a model for the page of graphs."""
    plugin = types.SimpleNamespace(plugin_name="graph_keras_model", content=b"1")

    def keras_model_summary(name, data, step=None):
        try:
            text = data.to_json()
        except Exception as error:
            warnings.warn(f"the model is not written for TensorBoard, since it cannot be written as JSON: {error}")
            return False
        return summary.write(name, text, step, types.SimpleNamespace(plugin_data=plugin))

    return keras_model_summary
