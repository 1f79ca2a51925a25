"""v1 graphs: operations that are described, and recorded when a session runs them.

While eager execution is off, functions of `tf` with a graph tensor among their arguments give another graph tensor: the
call itself, to be made when a session runs.
"""

from plimsoll import _engine as engine
from plimsoll import _operators
from plimsoll import nest
from plimsoll._types import TensorShape
from plimsoll._types import as_dtype


class GraphTensor:
    """A value that a session gives."""

    def __init__(self, evaluate, dtype=None, shape=None, name=None):
        self._evaluate = evaluate
        self._dtype, self._shape, self.name = dtype, shape, name

    @property
    def dtype(self):
        """The type of the elements, where it was said."""
        return None if self._dtype is None else as_dtype(self._dtype)

    @property
    def shape(self):
        """The sizes, where they were said."""
        return TensorShape(self._shape)

    def get_shape(self):
        """The sizes, where they were said."""
        return self.shape

    def eval(self, feed_dict=None, session=None):
        """The value."""
        from plimsoll.compat.v1 import get_default_session

        return (session or get_default_session()).run(self, feed_dict)

    run = eval
    __hash__ = object.__hash__

    def __bool__(self):
        raise TypeError("a tensor of a v1 graph has a value only when a session runs it")

    def __getitem__(self, key):
        return GraphTensor(lambda run: run(self)[nest.map_structure(run, key)])

    def __repr__(self):
        return f"<tf.Tensor {self.name or ''} of a v1 graph, shape={self.shape}, dtype={self._dtype}>"


def _install():
    for name, function in {**_operators.BINARY, **_operators.COMPARE}.items():
        setattr(GraphTensor, f"__{name}__", lambda self, other, f=function: _call(f, (self, other)))
        if name in _operators.BINARY:
            setattr(GraphTensor, f"__r{name}__", lambda self, other, f=function: _call(f, (other, self)))
    GraphTensor.__neg__ = lambda self: _call(lambda x: -x, (self,))


def _call(function, args, kwargs=None):
    def evaluate(run):
        return function(*nest.map_structure(run, tuple(args)), **nest.map_structure(run, kwargs or {}))

    return GraphTensor(evaluate)


_install()


def deferred(function, args, kwargs):
    """The call as a graph tensor, if one of its arguments is one."""
    if any(isinstance(x, GraphTensor) for x in nest.flatten((args, kwargs))):
        return _call(function, args, kwargs)
    return None


class Run:
    """One run of a session: every node is evaluated once."""

    def __init__(self, feeds):
        self._found = {id(key): value for key, value in feeds}

    def __call__(self, x):
        if not isinstance(x, GraphTensor):
            return x
        if id(x) not in self._found:
            self._found[id(x)] = x._evaluate(self)
        return self._found[id(x)]


def gradients_in_graph(loss, variables):
    """The derivatives of a node with respect to variables, as a node."""

    def evaluate(run):
        return engine.gradients([run(loss)], list(variables))

    return GraphTensor(evaluate)
