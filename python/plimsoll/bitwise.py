"""`tf.bitwise`: the bits of integers."""

from plimsoll import _engine as engine
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll._core import pair
from plimsoll._special import shift
from plimsoll.math import _binary

bitwise_and = _binary("bitwise_and", "bit_and", "Bits that both have.")
bitwise_or = _binary("bitwise_or", "bit_or", "Bits that either has.")
bitwise_xor = _binary("bitwise_xor", "bit_xor", "Bits that one of them has.")

@op
def left_shift(x, y, name=None):
    """Bits moved up."""
    a, b = pair(x, y, "LeftShift")
    return shift(a, b, True)


@op
def right_shift(x, y, name=None):
    """Bits moved down; the sign stays."""
    a, b = pair(x, y, "RightShift")
    return shift(a, b, False)


@op
def invert(x, name=None):
    """Every bit the other way round."""
    x = convert_to_tensor(x)
    if x.dtype == "uint8":
        return engine.binary("sub", 255, x)
    return engine.binary("sub", -1, x)
