"""What every `tf` function stands on: tensors of the engine, strings, variables, conversion, and how errors are told.

Tensors are the engine's own class. This module gives it types and shapes as `tf` has them; `_operators` its operators.
"""

import functools
import threading

import numpy as np

from plimsoll import _engine as engine
from plimsoll._types import BY_NAME
from plimsoll._types import DType
from plimsoll._types import TensorShape
from plimsoll._types import as_dtype
from plimsoll.errors import InvalidArgumentError

Tensor = engine.Tensor

# The engine's own attributes, read without the classes of this package on top.
raw_dtype = engine.Tensor.dtype.__get__
raw_shape = engine.Tensor.shape.__get__
_own_repr = engine.Tensor.__repr__

# NumPy's types that the engine does not compute with, and those that hold their numbers.
ENGINE_TYPES = frozenset(engine.dtypes())
_WIDER = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
_WIDER = {narrow: wide for narrow, wide in _WIDER.items() if narrow not in ENGINE_TYPES}

state = threading.local()


def _describe(self):
    shape = tuple.__repr__(tuple(raw_shape(self)))
    if self.is_symbolic:
        return f"<tf.Tensor: shape={shape}, dtype={raw_dtype(self)}, traced>"
    return f"<tf.Tensor: shape={shape}, dtype={raw_dtype(self)}, numpy={_shown(self, np.array_repr)}>"


def _shown(self, many):
    array = engine_numpy(self)
    return many(array) if array.ndim else array.item()


def _text(self):
    if self.is_symbolic:
        return _describe(self)
    shape = tuple.__repr__(tuple(raw_shape(self)))
    return f"tf.Tensor({_shown(self, np.array_str)}, shape={shape}, dtype={raw_dtype(self)})"


def _numpy(self):
    """The value: an array that cannot be written to, or a NumPy scalar where there are no axes."""
    array = engine_numpy(self)
    return array if array.ndim else array[()]


engine_numpy = engine.Tensor.numpy


def install():
    """Gives the engine's tensors the types and shapes of `tf`."""
    Tensor.dtype = property(lambda self: BY_NAME[raw_dtype(self)], doc="The type of the elements.")
    Tensor.shape = property(lambda self: tuple.__new__(TensorShape, raw_shape(self)), doc="The sizes.")
    Tensor.get_shape = lambda self: self.shape
    Tensor.set_shape = lambda self, shape: self.shape.assert_is_compatible_with(shape)
    Tensor.device = property(lambda self: "/job:localhost/replica:0/task:0/device:CPU:0")
    Tensor.name = property(lambda self: "tensor")
    Tensor.op = property(lambda self: None)
    Tensor.graph = property(lambda self: None)
    Tensor.ref = lambda self: Reference(self)
    Tensor.__repr__ = _describe
    Tensor.__str__ = _text
    Tensor.numpy = _numpy
    Tensor.__reduce__ = lambda self: (engine.tensor, (engine_numpy(self),))
    Tensor.__module__ = "plimsoll"


class Reference:
    """A tensor or variable as a key: equal to references of the same object."""

    def __init__(self, value):
        self._value = value

    def deref(self):
        """The object itself."""
        return self._value

    def __eq__(self, other):
        return isinstance(other, Reference) and self._value is other._value

    def __hash__(self):
        return id(self._value)


class StringTensor:
    """A tensor of strings: bytes in an array, on the host."""

    __slots__ = ("_array", "__weakref__")
    dtype = BY_NAME["string"]
    is_symbolic = False
    is_known = True

    def __init__(self, array):
        self._array = array

    shape = property(lambda self: TensorShape(self._array.shape))
    ndim = property(lambda self: self._array.ndim)
    device = property(lambda self: "/job:localhost/replica:0/task:0/device:CPU:0")

    def get_shape(self):
        """The sizes."""
        return self.shape

    def numpy(self):
        """Bytes, or an array of bytes."""
        return self._array if self._array.ndim else self._array[()]

    def __array__(self, dtype=None, copy=None):
        return self._array

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (StringTensor(np.asarray(part, object)) for part in self._array)

    def __getitem__(self, key):
        key = tuple(map(_plain_index, key)) if isinstance(key, tuple) else _plain_index(key)
        return StringTensor(np.asarray(self._array[key], object))

    def __eq__(self, other):
        return engine.tensor(np.asarray(self._array == strings_of(other), bool))

    def __ne__(self, other):
        return engine.tensor(np.asarray(self._array != strings_of(other), bool))

    def __add__(self, other):
        return StringTensor(np.asarray(self._array + strings_of(other), object))

    def __radd__(self, other):
        return StringTensor(np.asarray(strings_of(other) + self._array, object))

    __hash__ = object.__hash__

    def __bool__(self):
        if self._array.size != 1:
            raise ValueError("the truth of several strings is not one truth")
        return bool(self._array.reshape(-1)[0])

    def __repr__(self):
        shape = tuple.__repr__(self._array.shape)
        return f"<tf.Tensor: shape={shape}, dtype=string, numpy={self.numpy()!r}>"

    def __str__(self):
        return f"tf.Tensor({self.numpy()}, shape={tuple.__repr__(self._array.shape)}, dtype=string)"


def _plain_index(key):
    return engine_numpy(key) if isinstance(key, Tensor) else key


def _as_bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def strings_of(value):
    """An array of bytes from strings, lists of them, or a tensor of strings."""
    if isinstance(value, StringTensor):
        return value._array
    if isinstance(value, (str, bytes)):
        array = np.empty((), object)
        array[()] = _as_bytes(value)
        return array
    array = np.asarray(value, object)
    out = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        item = array[place]
        out[place] = item._array[()] if isinstance(item, StringTensor) else _as_bytes(item)
    return out


def _holds_strings(value):
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "SU":
            return True
        return value.dtype == object and value.size > 0 and isinstance(value.reshape(-1)[0], (str, bytes))
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (str, bytes, StringTensor))


def is_tensor(x):
    """Whether `x` is a tensor or variable."""
    return isinstance(x, (Tensor, StringTensor, engine.Variable)) or _variable_value(x) is not None


def _variable_value(x):
    """The value of what holds one: variables of this package and of Keras."""
    held = getattr(x, "_value", None)
    if isinstance(held, engine.Variable):
        return x.value
    return None


def convert_to_tensor(value, dtype=None, dtype_hint=None, name=None):
    """`value` as a tensor: of `dtype` exactly, or of `dtype_hint` if it can be.

    Python's floats become float32 and its integers int32, arrays keep their type, tensors must have it already.
    """
    if isinstance(value, Tensor):
        if dtype is not None and raw_dtype(value) != as_dtype(dtype):
            wanted, found = as_dtype(dtype).name, raw_dtype(value)
            raise ValueError(f"Tensor conversion requested dtype {wanted} for Tensor with dtype {found}: {value!r}")
        return value
    if isinstance(value, engine.Variable):
        return convert_to_tensor(value.value(), dtype)
    held = _variable_value(value)
    if held is not None:
        return convert_to_tensor(held, dtype)
    if isinstance(value, StringTensor):
        if dtype is not None and as_dtype(dtype) != "string":
            raise ValueError(f"Tensor conversion requested dtype {as_dtype(dtype).name} for Tensor with dtype string")
        return value
    if isinstance(value, TensorShape):
        value = value.as_list()
    if _holds_strings(value) or (dtype is not None and as_dtype(dtype) == "string"):
        return StringTensor(strings_of(value))
    if isinstance(value, (list, tuple)) and _has_tensors(value):
        return _stacked(value, dtype, dtype_hint)
    if value is None:
        raise ValueError("Attempt to convert a value (None) with an unsupported type (<class 'NoneType'>) to a Tensor.")
    return _from_host(value, dtype, dtype_hint)


def _has_tensors(value):
    return any(
        is_tensor(part) or (isinstance(part, (list, tuple)) and _has_tensors(part)) for part in value
    )


def _stacked(value, dtype, hint):
    tensors = [part for part in value if isinstance(part, Tensor)]
    if dtype is None and tensors:
        hint = tensors[0].dtype
    parts = [convert_to_tensor(part, dtype, hint) for part in value]
    if isinstance(parts[0], StringTensor):
        return StringTensor(np.stack([part._array for part in parts]))
    shapes = {tuple(part.shape) for part in parts}
    if len(shapes) > 1:
        raise InvalidArgumentError(None, None, f"tensors of different shapes cannot be packed into one: {sorted(shapes)}")
    return engine.concat([engine.reshape(part, [1, *part.shape]) for part in parts], 0)


def _from_host(value, dtype, hint):
    plain = isinstance(value, (bool, int, float, list, tuple)) and not isinstance(value, np.generic)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"Can't convert non-rectangular Python sequence to Tensor: {error}") from None
    kind = array.dtype.kind
    if kind not in "biufV":
        what = "complex numbers" if kind == "c" else f"a value ({value!r}) of type {type(value).__name__}"
        raise ValueError(f"Attempt to convert {what} to a Tensor: the engine has no such type")
    found = array.dtype.name
    if dtype is not None:
        wanted = as_dtype(dtype)
        if plain and kind == "f" and (wanted.is_integer or wanted.is_bool):
            raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {wanted.name}")
        if plain and kind == "b" and not wanted.is_bool and array.ndim == 0:
            raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {wanted.name}")
        return engine.tensor(array, _WIDER.get(wanted.name, wanted.name))
    if hint is not None:
        wanted = as_dtype(hint)
        if wanted.is_floating or (wanted.is_integer and kind in "iu") or (wanted.is_bool and kind == "b"):
            return engine.tensor(array, wanted.name)
    if plain and kind == "f":
        return engine.tensor(array, "float32")
    if plain and kind in "iu":
        small = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
        return engine.tensor(array, "int32" if small else "int64")
    return engine.tensor(array, _WIDER.get(found, found))


def constant(value, dtype=None, shape=None, name="Const"):
    """A tensor of these numbers or strings, of `shape` if that is given; one number fills it."""
    if isinstance(value, (Tensor, engine.Variable)) or _variable_value(value) is not None:
        x = convert_to_tensor(value)
        x = x if dtype is None else engine.cast(x, as_dtype(dtype).name)
    else:
        x = convert_to_tensor(value, dtype)
    if shape is None:
        return x
    shape = list(shape)
    if isinstance(x, StringTensor):
        return StringTensor(np.broadcast_to(x._array, shape) if x._array.size == 1 else x._array.reshape(shape))
    if x.shape.num_elements() == 1:
        return engine.broadcast_to(engine.reshape(x, []), shape)
    return engine.reshape(x, shape)


def number(value, dtype):
    """A Python number beside a tensor of this type, refused where it would lose its meaning."""
    if isinstance(value, float) and ("int" in dtype or dtype == "bool"):
        raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {dtype}")
    return value


def pair(a, b, what):
    """Two operands as tensors of one type; TensorFlow promotes nothing, and neither does this."""
    if isinstance(a, Tensor) and type(b) in (int, float):
        return a, number(b, raw_dtype(a))
    if isinstance(b, Tensor) and type(a) in (int, float):
        return number(a, raw_dtype(b)), b
    if is_tensor(a):
        a = convert_to_tensor(a)
        b = convert_to_tensor(b, dtype_hint=a.dtype)
    elif is_tensor(b):
        b = convert_to_tensor(b)
        a = convert_to_tensor(a, dtype_hint=b.dtype)
    else:
        a = convert_to_tensor(a)
        b = convert_to_tensor(b, dtype_hint=a.dtype)
    if a.dtype != b.dtype:
        text = f"cannot compute {what} as input #1(zero-based) was expected to be a {a.dtype.name} tensor but is a {b.dtype.name} tensor"
        raise InvalidArgumentError(None, None, text)
    return a, b


def op(function):
    """Makes a function one of `tf`'s: the engine's refusals become `tf.errors`, and v1 graphs are built with it."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        if graph_building():
            from plimsoll._graph import deferred

            made = deferred(call, args, kwargs)
            if made is not None:
                return made
        try:
            result = function(*args, **kwargs)
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise InvalidArgumentError(None, None, f"{function.__name__}: {error}") from None
        return result if not getattr(state, "stopped", 0) else _cut(result)

    return call


def _cut(result):
    """What is computed while a tape's recording is stopped: gradients do not pass."""
    if isinstance(result, Tensor) and result.dtype.is_floating:
        return engine.stop_gradient(result)
    return result


_graph = [False]


def graph_building():
    """Whether operations describe a v1 graph instead of being recorded."""
    return _graph[0]


def set_graph_building(on):
    """Switches between v1 graphs and recording."""
    _graph[0] = on


def static_shape(shape):
    """A shape given as a tensor, numbers or tensors of numbers, as a list of int."""
    if isinstance(shape, (Tensor, engine.Variable)):
        shape = np.atleast_1d(convert_to_tensor(shape).numpy()).tolist()
    elif isinstance(shape, (int, np.integer)):
        shape = [shape]
    return [int(d) for d in shape]


__all__ = ["DType", "Tensor", "StringTensor", "convert_to_tensor", "constant", "is_tensor", "op", "pair"]
