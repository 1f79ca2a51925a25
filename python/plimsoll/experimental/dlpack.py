"""`tf.experimental.dlpack`: tensors of other libraries."""

import numpy as np

from plimsoll._core import convert_to_tensor


def to_dlpack(tf_tensor):
    """The tensor as a capsule."""
    return tf_tensor.__dlpack__() if hasattr(tf_tensor, "__dlpack__") else np.asarray(tf_tensor.numpy()).__dlpack__()


def from_dlpack(dlcapsule):
    """A tensor from what has `__dlpack__`."""
    return convert_to_tensor(np.from_dlpack(dlcapsule))
