"""What is being recorded: traces for shape inference, functions traced per signature, derivatives given by hand."""

import contextlib
import threading
import warnings

from keras.src import tree
from plimsoll import _engine as engine
from plimsoll._tape import given_gradient

_state = threading.local()


def is_symbolic(x):
    """Whether a tensor's value is only known when a traced function runs."""
    return x.is_symbolic


def in_shape_inference():
    return getattr(_state, "inferring", 0) > 0


@contextlib.contextmanager
def shape_inference(types):
    """Placeholders of these shapes and types, in a record that is thrown away at the end."""
    placeholders = engine.trace_begin([(list(shape), dtype) for shape, dtype in types])
    _state.inferring = getattr(_state, "inferring", 0) + 1
    try:
        yield placeholders
    finally:
        _state.inferring -= 1
        engine.trace_abort()


@contextlib.contextmanager
def tape():
    """What is recorded inside is kept for gradients, also when values are looked at."""
    engine.tape_begin()
    try:
        yield
    finally:
        engine.tape_end()


class Function:
    """A Python function that is traced once for each structure, shape and type of its arguments.

    A trace that needs a value (`if` on a tensor, a decomposition on the host) is given up: from then on the function
    runs operation by operation, which a warning says once.
    """

    def __init__(self, function, name):
        self._function = function
        self._name = name
        self._traced = {}
        self._eager = False

    def __call__(self, *args):
        if self._eager or engine.trace_depth():
            return self._function(*args)
        leaves, signature = _leaves(args)
        try:
            traced = self._traced.get(signature) or self._trace(args, leaves, signature)
        except engine.UntraceableError as error:
            self._eager = True
            warnings.warn(f"{self._name} runs operation by operation, not as one planned step: {error}", stacklevel=2)
            return self._function(*args)
        return traced.outputs(traced.program([_as_tensor(x) for x in leaves if _is_array(x)]))

    def steps(self, data, size, count, order=None):
        """Calls with `count` batches of `size` rows of the data, one after the other; what the last call returns.

        `order` lists the rows; without it they come as they are. The calls run in the engine, without Python in between,
        unless the function returns so much that keeping it for every step would cost memory.
        """

        def rows(i):
            part = slice(i * size, (i + 1) * size)
            return tree.map_structure(lambda x: x[part if order is None else order[part]], data, none_is_leaf=False)

        first = rows(0)
        traced = None if self._eager else self._traced.get(_leaves((first,))[1])
        if traced is None or not traced.is_small or not hasattr(engine, "run_steps"):
            for i in range(count):
                outputs = self(rows(i))
                engine.flush()
            return outputs
        feeds = [x for x in tree.flatten((data,)) if _is_array(x)]
        collect = list(range(len(traced.tensors)))
        order = None if order is None else order.tolist()
        stacked = engine.run_steps(traced.program, feeds, size, count, collect=collect, order=order)
        return traced.outputs([x.numpy()[-1] for x in stacked])

    def elements(self, batch, elements, count, seconds):
        """Calls with the next batches of a data set, without Python in between, as long as they are like this one.

        At most `count` of them and for about so many seconds. Gives what the last call returned, how many there were, and
        the batch behind them, flat, if it is not like this one.
        """
        traced = None if self._eager else self._traced.get(_leaves((batch,))[1])
        if traced is None:
            return None, 0, None
        tensors, done, other = engine.run_elements(traced.program, elements, count, seconds)
        return (traced.outputs(tensors) if done else None), done, other

    def program(self, *args):
        """The program for arguments like these, traced if it has not been."""
        leaves, signature = _leaves(args)
        return self._traced.get(signature) or self._trace(args, leaves, signature)

    def _trace(self, args, leaves, signature):
        arrays = [x for x in leaves if _is_array(x)]
        placeholders = engine.trace_begin([(list(x.shape), _dtype(x)) for x in arrays])
        try:
            inputs = iter(placeholders)
            flat = [next(inputs) if _is_array(x) else x for x in leaves]
            results = self._function(*tree.pack_sequence_as(args, flat))
            traced = _Traced(results)
            traced.program = engine.trace_end(traced.tensors)
        except BaseException:
            engine.trace_abort()
            raise
        self._traced[signature] = traced
        return traced


class _Traced:
    """A program and the structure that its outputs are returned in."""

    def __init__(self, results):
        from keras_plimsoll.src.core import Variable

        self._flat = [x.value if isinstance(x, Variable) else x for x in tree.flatten(results)]
        self.tensors = [x for x in self._flat if isinstance(x, engine.Tensor)]
        self._flat = [_PLACE if isinstance(x, engine.Tensor) else x for x in self._flat]
        self._structure = tree.map_structure(lambda _: 0, results)
        self.program = None
        self.is_small = sum(x.nbytes for x in self.tensors) <= _SMALL

    def outputs(self, tensors):
        tensors = iter(tensors)
        flat = [next(tensors) if x is _PLACE else x for x in self._flat]
        return tree.pack_sequence_as(self._structure, flat)


_PLACE = object()

# What a step returns, in bytes, for a stretch of steps to keep all of it.
_SMALL = 4096


def _is_array(x):
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _dtype(x):
    from keras_plimsoll.src.core import result_type

    if isinstance(x, engine.Tensor):
        return x.dtype
    return result_type(str(x.dtype))


def _as_tensor(x):
    from keras_plimsoll.src.core import convert_to_tensor

    return convert_to_tensor(x)


def _leaves(args):
    leaves = tree.flatten(args)
    signature = [(tuple(x.shape), str(x.dtype)) if _is_array(x) else x for x in leaves]
    return leaves, (str(tree.map_structure(lambda _: 0, args)), *signature)


def with_gradient(fun, args, kwargs):
    """`fun(*args) -> (outputs, gradient)` recorded with that gradient function as its derivative."""
    from keras_plimsoll.src.core import convert_to_tensor

    tensors = [convert_to_tensor(x) if _is_array(x) else x for x in args]
    fixed = [engine.stop_gradient(x) if isinstance(x, engine.Tensor) else x for x in tensors]
    outputs, gradient = fun(*fixed, **kwargs)
    flat = [convert_to_tensor(y) for y in tree.flatten(outputs)]
    return tree.pack_sequence_as(outputs, given_gradient(flat, tensors, gradient))


def gradients(loss, variables):
    """The gradients of a loss with respect to Keras variables; `None` where it does not depend."""
    from keras_plimsoll.src.core import Variable

    sources = [v._value if isinstance(v, Variable) else v for v in variables]
    return engine.gradients([loss], sources)
