"""What `tf.keras` has beside Keras 3's own names."""

import types


def add(keras):
    """Gives Keras the older names that `tf.keras` programs use."""
    if getattr(keras, "_plimsoll", False):
        return
    keras._plimsoll = True
    policies = keras.mixed_precision
    if not hasattr(policies, "set_global_policy"):
        policies.set_global_policy = keras.config.set_dtype_policy
    if not hasattr(policies, "global_policy"):
        policies.global_policy = keras.config.dtype_policy
    if not hasattr(policies, "Policy"):
        policies.Policy = keras.dtype_policies.DTypePolicy
    experimental = getattr(keras, "experimental", None) or types.SimpleNamespace()
    keras.experimental = experimental
    if not hasattr(keras.layers, "experimental"):
        keras.layers.experimental = types.SimpleNamespace(preprocessing=keras.layers)
