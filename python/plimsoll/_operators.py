"""Operators of tensors and variables, with the rules of `tf`: equal types, no promotion."""

from plimsoll import _engine as engine
from plimsoll import math
from plimsoll._core import StringTensor
from plimsoll._core import Tensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import raw_dtype
from plimsoll._index import getitem
from plimsoll.errors import InvalidArgumentError


def _bits(logical, bitwise):
    def function(a, b):
        some = a if isinstance(a, (Tensor, engine.Variable)) else b
        if some.dtype == "bool":
            return logical(a, b)
        from plimsoll import bitwise as bits

        return getattr(bits, bitwise)(a, b)

    return function


def _matmul(a, b):
    from plimsoll import linalg

    return linalg.matmul(a, b)


BINARY = {
    "add": math.add,
    "sub": math.subtract,
    "mul": math.multiply,
    "truediv": math.divide,
    "floordiv": math.floordiv,
    "mod": math.floormod,
    "pow": math.pow,
    "matmul": _matmul,
    "and": _bits(math.logical_and, "bitwise_and"),
    "or": _bits(math.logical_or, "bitwise_or"),
    "xor": _bits(math.logical_xor, "bitwise_xor"),
}
COMPARE = {"lt": math.less, "le": math.less_equal, "gt": math.greater, "ge": math.greater_equal}


def _foreign(other):
    # What knows better itself: symbolic tensors of Keras; and what is no number.
    return other is None or isinstance(other, (str, dict)) or type(other).__name__ in ("KerasTensor", "GraphTensor")


def _forward(function):
    def operator(self, other):
        return NotImplemented if _foreign(other) else function(self, other)

    return operator


def _backward(function):
    def operator(self, other):
        return NotImplemented if _foreign(other) else function(other, self)

    return operator


def _equal(self, other):
    if _foreign(other):
        return NotImplemented if type(other).__name__ in ("KerasTensor", "GraphTensor") else False
    if isinstance(other, StringTensor):
        return False
    return math.equal(self, other)


def _not_equal(self, other):
    if _foreign(other):
        return NotImplemented if type(other).__name__ in ("KerasTensor", "GraphTensor") else True
    return math.not_equal(self, other)


def _invert(self):
    if self.dtype == "bool":
        return math.logical_not(self)
    from plimsoll import bitwise

    return bitwise.invert(self)


def _getitem(self, key):
    try:
        return getitem(self, key)
    except IndexError as error:
        raise InvalidArgumentError(None, None, f"slice index: {error}") from None


def _iterate(self):
    if self.ndim == 0:
        raise TypeError("Cannot iterate over a scalar tensor.")
    if self.is_known and self.shape[0] > 64:
        # Row by row from memory: a record of thousands of slices would be planned as one graph.
        return (engine.tensor(row, raw_dtype(self)) for row in self.numpy())
    return iter([getitem(self, i) for i in range(self.shape[0])])


def install(cls):
    """Gives a class of tensors or variables its operators."""
    for name, function in BINARY.items():
        setattr(cls, f"__{name}__", _forward(function))
        setattr(cls, f"__r{name}__", _backward(function))
    for name, function in COMPARE.items():
        setattr(cls, f"__{name}__", _forward(function))
    cls.__eq__ = _equal
    cls.__ne__ = _not_equal
    cls.__neg__ = lambda self: math.negative(self)
    cls.__pos__ = lambda self: convert_to_tensor(self)
    cls.__abs__ = lambda self: math.abs(self)
    cls.__invert__ = _invert
    cls.__getitem__ = _getitem if cls is Tensor else lambda self, key: _getitem(self.value(), key)
    cls.__iter__ = _iterate if cls is Tensor else lambda self: _iterate(self.value())
    # NumPy must not take `array + tensor` apart into its elements.
    cls.__array_priority__ = 100
