"""`tf.compat.v1`: sessions over eager programs, and small v1 graphs with placeholders, variables and optimizers.

No more of TensorFlow 1 than that; names that are in `tf` too are those.
"""

import contextlib
import sys

import numpy as np

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._core import convert_to_tensor
from plimsoll._core import graph_building
from plimsoll._core import set_graph_building
from plimsoll._graph import GraphTensor
from plimsoll._graph import Run
from plimsoll._initializers import constant_initializer as constant_initializer
from plimsoll._initializers import glorot_uniform_initializer as glorot_uniform_initializer
from plimsoll._initializers import ones_initializer as ones_initializer
from plimsoll._initializers import random_normal_initializer as random_normal_initializer
from plimsoll._initializers import random_uniform_initializer as random_uniform_initializer
from plimsoll._initializers import truncated_normal_initializer as truncated_normal_initializer
from plimsoll._initializers import zeros_initializer as zeros_initializer
from plimsoll._types import as_dtype
from plimsoll._variable import Variable as _Variable
from plimsoll.compat.v1 import data as data
from plimsoll.compat.v1 import train as train
from plimsoll.compat.v1 import logging as logging


def disable_eager_execution():
    """From now on placeholders and what is computed from them are described, and run by sessions."""
    set_graph_building(True)


def enable_eager_execution(config=None, device_policy=None, execution_mode=None):
    """Back to recording."""
    set_graph_building(False)


def executing_eagerly():
    """Whether eager execution is on."""
    return not graph_building()


def disable_v2_behavior():
    """As `disable_eager_execution`."""
    set_graph_building(True)


def enable_v2_behavior():
    """As `enable_eager_execution`."""
    set_graph_building(False)


def placeholder(dtype, shape=None, name=None):
    """A value that is given to a session when it runs."""

    def missing(run):
        from plimsoll.errors import InvalidArgumentError

        raise InvalidArgumentError(None, None, f"You must feed a value for placeholder tensor {name or ''!r} with dtype {as_dtype(dtype).name}")

    return GraphTensor(missing, dtype, shape, name)


_made = []
_by_name = {}
_scopes = []


class GraphVariable(GraphTensor):
    """A variable of a v1 graph."""

    def __init__(self, initial_value, trainable=True, name=None, dtype=None):
        self.variable = _Variable(initial_value, trainable=trainable, name=name, dtype=dtype)
        self._first = self.variable.numpy()
        super().__init__(lambda run: self.variable.value(), self.variable.dtype, self.variable.shape, f"{name}:0")
        _made.append(self)

    trainable = property(lambda self: self.variable.trainable)

    @property
    def initializer(self):
        """Gives it its first value again."""
        return GraphTensor(lambda run: self.variable.assign(self._first).value())

    def assign(self, value, use_locking=None, name=None, read_value=True):
        """Gives it another value when it runs."""
        return GraphTensor(lambda run: self.variable.assign(run(value)).value())

    def assign_add(self, delta, use_locking=None, name=None, read_value=True):
        """Adds to it when it runs."""
        return GraphTensor(lambda run: self.variable.assign_add(run(delta)).value())

    def assign_sub(self, delta, use_locking=None, name=None, read_value=True):
        """Subtracts from it when it runs."""
        return GraphTensor(lambda run: self.variable.assign_sub(run(delta)).value())


def Variable(initial_value=None, trainable=None, name=None, dtype=None, **kwargs):
    """A variable: of the graph while eager execution is off."""
    if graph_building():
        set_graph_building(False)
        try:
            return GraphVariable(initial_value, trainable is not False, name or "Variable", dtype)
        finally:
            set_graph_building(True)
    return _Variable(initial_value, trainable=trainable, name=name, dtype=dtype)


def get_variable(name, shape=None, dtype="float32", initializer=None, regularizer=None, trainable=None, **kwargs):
    """The variable of this name, made if there is none."""
    full = "/".join([*_scopes, name])
    if full in _by_name:
        return _by_name[full]
    make = initializer or glorot_uniform_initializer()
    if isinstance(make, type):
        make = make()
    building = graph_building()
    set_graph_building(False)
    try:
        first = make(shape, dtype=as_dtype(dtype)) if callable(make) else convert_to_tensor(make)
        kind = GraphVariable if building else _Variable
        made = kind(first, trainable=trainable is not False, name=full)
    finally:
        set_graph_building(building)
    _by_name[full] = made
    return made


@contextlib.contextmanager
def variable_scope(name_or_scope, default_name=None, reuse=None, **kwargs):
    """Names for variables made inside."""
    _scopes.append(name_or_scope or default_name)
    try:
        yield
    finally:
        _scopes.pop()


def global_variables(scope=None):
    """All variables of the graph."""
    return list(_made)


def trainable_variables(scope=None):
    """Those that are trained."""
    return [v for v in _made if v.trainable]


def global_variables_initializer():
    """Gives all variables their first values."""

    def evaluate(run):
        for v in _made:
            v.variable.assign(v._first)

    return GraphTensor(evaluate)


def local_variables_initializer():
    """There are no local variables."""
    return GraphTensor(lambda run: None)


def tables_initializer(name="init_all_tables"):
    """Tables are ready when they are made."""
    return GraphTensor(lambda run: None)


def reset_default_graph():
    """Forgets all variables."""
    _made.clear()
    _by_name.clear()


class Graph:
    """The one graph there is."""

    @contextlib.contextmanager
    def as_default(self):
        """Its operations are described inside."""
        before = graph_building()
        set_graph_building(True)
        try:
            yield self
        finally:
            set_graph_building(before)

    def finalize(self):
        """Accepted."""


def get_default_graph():
    """The one graph there is."""
    return Graph()


class ConfigProto:
    """Settings of a session; a memory fraction and growth are accepted."""

    def __init__(self, **settings):
        self.gpu_options = GPUOptions()
        self.allow_soft_placement = True
        vars(self).update(settings)


class GPUOptions:
    """Accepted: there is no GPU."""

    def __init__(self, **settings):
        self.allow_growth = False
        self.per_process_gpu_memory_fraction = 1.0
        vars(self).update(settings)


_sessions = []


class Session:
    """Runs v1 graphs; over an eager program it gives the values of tensors."""

    def __init__(self, target="", graph=None, config=None):
        self.graph = graph or get_default_graph()

    def __enter__(self):
        _sessions.append(self)
        return self

    def __exit__(self, *_):
        _sessions.remove(self)

    def close(self):
        """Nothing is held."""

    @contextlib.contextmanager
    def as_default(self):
        """The session of what is evaluated inside."""
        with self:
            yield self

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        """The values of graph tensors, as arrays."""
        if fetches is None:
            raise TypeError("Argument `fetches` = None has invalid type")
        building = graph_building()
        set_graph_building(False)
        engine.flush()
        engine.tape_begin()
        try:
            feeds = [(key, _fed(key, value)) for key, value in (feed_dict or {}).items()]
            run = Run(feeds)
            found = [run(x) for x in nest.flatten(fetches)]
        finally:
            engine.tape_end()
            set_graph_building(building)
        engine.flush()
        return nest.pack_sequence_as(fetches, [_value(x) for x in found])


def _fed(key, value):
    dtype = getattr(key, "_dtype", None)
    x = convert_to_tensor(value, dtype_hint=dtype)
    if dtype is not None and x.dtype != as_dtype(dtype):
        x = engine.cast(x, as_dtype(dtype).name)
    if not key.shape.is_compatible_with(x.shape) and key._shape is not None:
        raise ValueError(f"Cannot feed value of shape {x.shape} for Tensor {key.name!r}, which has shape {key.shape}")
    return x


def _value(x):
    if nest.is_nested(x):
        return nest.map_structure(_value, x)
    return np.asarray(x.numpy()) if hasattr(x, "numpy") and getattr(x, "ndim", 0) else x.numpy() if hasattr(x, "numpy") else x


InteractiveSession = Session


def get_default_session():
    """The innermost session."""
    if not _sessions:
        raise ValueError("there is no default session: use `with tf.compat.v1.Session():`")
    return _sessions[-1]


def __getattr__(name):
    return getattr(sys.modules["plimsoll"], name)
