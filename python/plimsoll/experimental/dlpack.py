"""`tf.experimental.dlpack`: tensors of other libraries."""

from plimsoll import _engine as engine
from plimsoll._core import convert_to_tensor


class _Capsule:
    """A capsule as an object of the protocol."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return 1, 0


def to_dlpack(tf_tensor):
    """The tensor as a capsule."""
    return convert_to_tensor(tf_tensor).__dlpack__()


def from_dlpack(dlcapsule):
    """A tensor from a capsule, or from what has `__dlpack__`."""
    return engine.from_dlpack(dlcapsule if hasattr(dlcapsule, "__dlpack__") else _Capsule(dlcapsule))
