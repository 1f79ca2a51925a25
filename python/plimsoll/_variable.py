"""`tf.Variable`: a value that is kept and changed."""

import contextlib

import numpy as np

from plimsoll import _engine as engine
from plimsoll import _operators
from plimsoll._core import Reference
from plimsoll._core import StringTensor
from plimsoll._core import Tensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import engine_numpy
from plimsoll._types import BY_NAME
from plimsoll._types import TensorShape
from plimsoll._types import as_dtype

_engine_dtype = engine.Variable.dtype.__get__
_engine_shape = engine.Variable.shape.__get__


class VariableSynchronization:
    """Accepted and without effect: there is one replica."""

    AUTO, NONE, ON_WRITE, ON_READ = range(4)


class VariableAggregation:
    """Accepted and without effect: there is one replica."""

    NONE, SUM, MEAN, ONLY_FIRST_REPLICA = range(4)


@contextlib.contextmanager
def init_scope():
    """What is done inside happens at once, also where a function is being traced."""
    paused = engine.trace_pause() if engine.trace_depth() else None
    try:
        yield
    finally:
        if paused is not None:
            engine.trace_resume(paused)


class Variable(engine.Variable):
    """A tensor that is kept from operation to operation and changed by `assign`.

    >>> v = tf.Variable([1.0, 2.0])
    >>> v.assign_add([1.0, 1.0])
    """

    def __new__(
        cls,
        initial_value=None,
        trainable=None,
        validate_shape=True,
        caching_device=None,
        name=None,
        variable_def=None,
        dtype=None,
        import_scope=None,
        constraint=None,
        synchronization=VariableSynchronization.AUTO,
        aggregation=VariableAggregation.NONE,
        shape=None,
    ):
        if initial_value is None:
            raise ValueError("initial_value must not be None.")
        with init_scope():
            value = initial_value() if callable(initial_value) else initial_value
            if isinstance(value, Tensor) and value.is_symbolic:
                # The function runs once operation by operation, and is traced when the variable is there.
                raise engine.UntraceableError("it makes a variable from values that are only known when it runs")
            value = convert_to_tensor(value, dtype_hint=dtype)
            if dtype is not None and value.dtype != as_dtype(dtype):
                value = engine.cast(value, as_dtype(dtype).name)
            if isinstance(value, StringTensor):
                raise TypeError("variables hold numbers, not strings")
            made = super().__new__(cls, value, name or "Variable", True if trainable is None else bool(trainable))
        made._constraint = constraint
        return made

    def __init__(self, *args, **kwargs):
        pass

    dtype = property(lambda self: BY_NAME[_engine_dtype(self)])
    shape = property(lambda self: tuple.__new__(TensorShape, _engine_shape(self)))
    name = property(lambda self: f"{engine.Variable.name.__get__(self)}:0")
    device = property(lambda self: "/job:localhost/replica:0/task:0/device:CPU:0")
    constraint = property(lambda self: self._constraint)
    initialized_value = engine.Variable.value
    read_value = engine.Variable.value
    handle = property(lambda self: self)

    def numpy(self):
        """The value as an array that may be written to."""
        array = np.array(engine_numpy(self.value()))
        return array if array.ndim else array[()]

    def get_shape(self):
        """The sizes."""
        return self.shape

    def ref(self):
        """The variable as a key."""
        return Reference(self)

    def _given(self, value):
        value = convert_to_tensor(value, dtype_hint=self.dtype)
        if value.dtype != self.dtype:
            raise ValueError(f"Tensor conversion requested dtype {self.dtype.name} for Tensor with dtype {value.dtype.name}")
        return value

    def assign(self, value, use_locking=False, name=None, read_value=True):
        """Gives it another value of the same shape."""
        value = self._given(value)
        if tuple(value.shape) != tuple(self.shape):
            raise ValueError(f"Cannot assign value to variable '{self.name}': Shape mismatch.The variable shape {self.shape}, and the assigned value shape {value.shape} are incompatible.")
        engine.Variable.assign(self, value)
        return self

    def assign_add(self, delta, use_locking=False, name=None, read_value=True):
        """Adds to it."""
        engine.Variable.assign_add(self, self._given(delta))
        return self

    def assign_sub(self, delta, use_locking=False, name=None, read_value=True):
        """Subtracts from it."""
        engine.Variable.assign_sub(self, self._given(delta))
        return self

    def scatter_nd_update(self, indices, updates, name=None):
        """Replaces slices."""
        from plimsoll._array import tensor_scatter_nd_update

        return self.assign(tensor_scatter_nd_update(self.value(), indices, updates))

    def scatter_nd_add(self, indices, updates, name=None):
        """Adds to slices."""
        from plimsoll._array import tensor_scatter_nd_add

        return self.assign(tensor_scatter_nd_add(self.value(), indices, updates))

    def scatter_update(self, sparse_delta, use_locking=False, name=None):
        """Replaces rows."""
        places = np.asarray(convert_to_tensor(sparse_delta.indices).numpy()).reshape(-1, 1)
        return self.scatter_nd_update(places, sparse_delta.values)

    def __array__(self, dtype=None, copy=None):
        array = self.numpy()
        return np.asarray(array) if dtype is None else np.asarray(array, dtype)

    def __float__(self):
        return float(self.value())

    def __int__(self):
        return int(self.value())

    def __index__(self):
        return self.value().__index__()

    def __bool__(self):
        return bool(self.value())

    def __len__(self):
        return len(self.value())

    __hash__ = object.__hash__

    def __repr__(self):
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}, numpy={self.numpy()!r}>"

    def __deepcopy__(self, memo):
        return Variable(self.value(), trainable=self.trainable, name=self.name[:-2])

    def __reduce__(self):
        return _unpickled, (self.numpy(), self.trainable, self.name[:-2])


def _unpickled(value, trainable, name):
    return Variable(value, trainable=trainable, name=name)


_operators.install(Variable)
Variable.__hash__ = object.__hash__
