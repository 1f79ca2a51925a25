"""`tf.bitwise`: the bits of integers."""

from plimsoll import _engine as engine
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll.math import _binary

bitwise_and = _binary("bitwise_and", "bit_and", "Bits that both have.")
bitwise_or = _binary("bitwise_or", "bit_or", "Bits that either has.")
bitwise_xor = _binary("bitwise_xor", "bit_xor", "Bits that one of them has.")
left_shift = _binary("left_shift", "shift_left", "Bits moved up.")
right_shift = _binary("right_shift", "shift_right", "Bits moved down.")


@op
def invert(x, name=None):
    """Every bit the other way round."""
    x = convert_to_tensor(x)
    if x.dtype == "uint8":
        return engine.binary("sub", 255, x)
    return engine.binary("sub", -1, x)
