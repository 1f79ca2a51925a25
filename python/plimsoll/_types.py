"""Element types, shapes and specs: the nouns of `tf`, as subclasses of `str` and `tuple`.

The engine names types by strings and shapes by tuples. These are such strings and tuples, so they pass to it as they are.
"""

import numpy as np

# NumPy has these from ml_dtypes.
_FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_FLOATS = ("float16", "float32", "float64", *_FOREIGN)
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_SIZES = {"bool": 1, "string": -1, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex64": 8, "complex128": 16, "variant": -1, "resource": -1}


class DType(str):
    """The type of a tensor's elements. Equal to its name and to NumPy's type of the same name."""

    __slots__ = ()

    @property
    def name(self):
        """The name as a plain string."""
        return str.__str__(self)

    base_dtype = property(lambda self: self)
    is_floating = property(lambda self: self.name in _FLOATS)
    is_integer = property(lambda self: self.name in _INTEGERS)
    is_bool = property(lambda self: self.name == "bool")
    is_complex = property(lambda self: self.name.startswith("complex"))
    is_unsigned = property(lambda self: self.name.startswith("uint"))
    is_numeric = property(lambda self: self.is_floating or self.is_integer or self.is_complex)

    @property
    def as_numpy_dtype(self):
        """NumPy's type, as a class; `object` for strings."""
        if self.name == "string":
            return np.object_
        if self.name in _FOREIGN:
            import ml_dtypes

            return getattr(ml_dtypes, self.name)
        return np.dtype(self.name).type

    @property
    def size(self):
        """The bytes of one element."""
        return _SIZES.get(self.name) or np.dtype(self.name).itemsize

    @property
    def max(self):
        """The largest number of the type."""
        return self._limits().max

    @property
    def min(self):
        """The smallest number of the type."""
        return self._limits().min

    @property
    def limits(self):
        """The smallest and the largest number."""
        return self.min, self.max

    def _limits(self):
        if self.name in _FOREIGN:
            import ml_dtypes

            return ml_dtypes.finfo(self.as_numpy_dtype)
        return np.finfo(self.name) if self.is_floating else np.iinfo(self.name)

    def is_compatible_with(self, other):
        """Whether it is the same type."""
        return self == as_dtype(other)

    def __eq__(self, other):
        if isinstance(other, str):
            return str.__eq__(self, other)
        try:
            return other is not None and str.__eq__(self, as_dtype(other))
        except TypeError:
            return False

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__

    def __repr__(self):
        return f"tf.{self.name}"

    def __str__(self):
        return f"<dtype: '{self.name}'>"

    def __reduce__(self):
        return as_dtype, (self.name,)


BY_NAME = {name: DType(name) for name in (*_FLOATS, *_INTEGERS, *_SIZES)}
_OF_PYTHON = {float: "float32", int: "int32", bool: "bool", str: "string", bytes: "string", object: "string"}


def as_dtype(value):
    """The type that a name, a NumPy type or a Python type stands for."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _OF_PYTHON:
        return BY_NAME[_OF_PYTHON[value]]
    name = value if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str):
        try:
            name = np.dtype(value).name
        except TypeError:
            raise TypeError(f"{value!r} is no type of elements") from None
    name = {"half": "float16", "float": "float32", "double": "float64", "object": "string"}.get(name, name)
    if name.startswith(("str", "bytes")):
        name = "string"
    if name not in BY_NAME:
        raise TypeError(f"{value!r} is no type of elements")
    return BY_NAME[name]


class TensorShape(tuple):
    """Sizes along each axis; `None` where a size is not known."""

    __slots__ = ()

    def __new__(cls, dims=()):
        if dims is None:
            return UNKNOWN
        if isinstance(dims, int):
            dims = (dims,)
        return tuple.__new__(cls, (None if d is None else int(d) for d in dims))

    rank = property(lambda self: len(self))
    ndims = property(lambda self: len(self))
    dims = property(lambda self: list(self))

    def as_list(self):
        """The sizes as a list."""
        return list(self)

    def as_proto(self):
        """The sizes, -1 where unknown."""
        return [-1 if d is None else d for d in self]

    def num_elements(self):
        """The product of the sizes, `None` if one is not known."""
        product = 1
        for d in self:
            if d is None:
                return None
            product *= d
        return product

    def is_fully_defined(self):
        """Whether every size is known."""
        return None not in tuple(self)

    def is_compatible_with(self, other):
        """Whether both can be the shape of one tensor."""
        other = TensorShape(other)
        if self is UNKNOWN or other is UNKNOWN:
            return True
        return len(self) == len(other) and all(a is None or b is None or a == b for a, b in zip(self, other))

    def assert_is_compatible_with(self, other):
        """Raises unless `is_compatible_with`."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(other)} are incompatible")

    def assert_has_rank(self, rank):
        """Raises unless there are so many axes."""
        if len(self) != rank:
            raise ValueError(f"Shape {self} must have rank {rank}")

    def with_rank(self, rank):
        """This shape, which must have so many axes."""
        self.assert_has_rank(rank)
        return self

    def merge_with(self, other):
        """The shape with what either knows."""
        other = TensorShape(other)
        self.assert_is_compatible_with(other)
        if self is UNKNOWN or other is UNKNOWN:
            return other if self is UNKNOWN else self
        return TensorShape(b if a is None else a for a, b in zip(self, other))

    def concatenate(self, other):
        """This shape followed by another."""
        return self + other

    def __add__(self, other):
        return TensorShape((*self, *((other,) if isinstance(other, int) else other)))

    def __radd__(self, other):
        return TensorShape((*other, *self))

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        return TensorShape(found) if isinstance(key, slice) else found

    def __eq__(self, other):
        if isinstance(other, (tuple, list)):
            return tuple.__eq__(self, tuple(other)) and (self is UNKNOWN) == (other is UNKNOWN)
        return NotImplemented

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return tuple.__hash__(self)

    def __bool__(self):
        return self is not UNKNOWN

    def __repr__(self):
        return "TensorShape(None)" if self is UNKNOWN else f"TensorShape({list(self)})"

    def __str__(self):
        return "<unknown>" if self is UNKNOWN else tuple.__repr__(self)

    def __reduce__(self):
        return TensorShape, (None if self is UNKNOWN else tuple(self),)


UNKNOWN = tuple.__new__(TensorShape)


class TypeSpec:
    """What a value looks like."""


class TensorSpec(TypeSpec):
    """Shape and type of a tensor."""

    __slots__ = ("shape", "dtype", "name")

    def __init__(self, shape=None, dtype="float32", name=None):
        self.shape, self.dtype, self.name = TensorShape(shape), as_dtype(dtype), name

    @classmethod
    def from_tensor(cls, tensor, name=None):
        """The spec of a tensor."""
        return cls(tensor.shape, tensor.dtype, name)

    from_spec = from_tensor

    def is_compatible_with(self, value):
        """Whether a tensor or spec fits."""
        return self.dtype == value.dtype and self.shape.is_compatible_with(value.shape)

    def __eq__(self, other):
        if not isinstance(other, TensorSpec):
            return NotImplemented
        return (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self):
        return hash((self.shape, self.dtype))

    def __repr__(self):
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"
