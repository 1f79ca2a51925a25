"""`tf.function`: a Python function traced once for each structure, shape and type of its arguments, and planned as one."""

import functools
import inspect
import warnings

import numpy as np

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._core import StringTensor
from plimsoll._core import Tensor
from plimsoll._core import _variable_value
from plimsoll._core import convert_to_tensor
from plimsoll._core import raw_dtype
from plimsoll._core import raw_shape
from plimsoll._types import TensorSpec

_eagerly = [False]


def run_functions_eagerly(run_eagerly):
    """Lets functions run operation by operation, or as they are traced."""
    _eagerly[0] = bool(run_eagerly)


def functions_run_eagerly():
    """Whether functions run operation by operation."""
    return _eagerly[0]


class _Traced:
    """A program, and the structure that its results are returned in."""

    def __init__(self, results):
        flat = [_result(x) for x in nest.flatten(results)]
        self.structure = nest.pack_sequence_as(results, flat)
        self.tensors = [x for x in flat if isinstance(x, Tensor)]
        self.flat = [_PLACE if isinstance(x, Tensor) else x for x in flat]
        self.program = None

    def outputs(self, tensors):
        given = iter(tensors)
        flat = [next(given) if x is _PLACE else x for x in self.flat]
        return nest.pack_sequence_as(self.structure, flat)


def _result(x):
    if isinstance(x, engine.Variable) or _variable_value(x) is not None:
        return convert_to_tensor(x)
    return convert_to_tensor(x) if isinstance(x, (int, float, np.ndarray)) and not isinstance(x, bool) else x


_PLACE = object()


class Function:
    """A function of tensors. Called, it runs as one planned program.

    Python code in it runs when it is traced, once for each signature of arguments. Where the code asks for a value
    (`if` on a tensor), the function runs operation by operation; when that happens again, it always does, and a warning says
    so once.
    """

    def __init__(self, python_function, input_signature=None, reduce_retracing=False, autograph=True):
        functools.update_wrapper(self, python_function)
        self.python_function = python_function
        self.input_signature = None if input_signature is None else tuple(input_signature)
        self._traces, self._eager, self._failed, self._bound = {}, False, False, {}
        self._self = None
        self._parameters = None

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        bound = self._bound.get(id(instance))
        if bound is None or bound._self is not instance:
            bound = Function(functools.partial(self.python_function, instance), self.input_signature)
            functools.update_wrapper(bound, self.python_function)
            bound._self = instance
            self._bound[id(instance)] = bound
        return bound

    def __call__(self, *args, **kwargs):
        if _eagerly[0] or self._eager:
            return self.python_function(*args, **kwargs)
        args, kwargs = self._prepared(args, kwargs)
        leaves, signature = _signature(args, kwargs)
        traced = self._traces.get(signature)
        if traced is None:
            try:
                traced = self._trace(args, kwargs, leaves, signature)
            except engine.UntraceableError as error:
                return self._fall_back(error, args, kwargs)
        return traced.outputs(traced.program([x for x in leaves if isinstance(x, Tensor)]))

    def _fall_back(self, error, args, kwargs):
        if not self._failed:
            # It may have been making its variables, which are there from the next call on.
            self._failed = True
            return self.python_function(*args, **kwargs)
        self._eager = True
        name = getattr(self.python_function, "__qualname__", None) or getattr(self, "__name__", "function")
        warnings.warn(f"{name} runs operation by operation, not as one planned step: {error}", stacklevel=3)
        return self.python_function(*args, **kwargs)

    def _prepared(self, args, kwargs):
        """Arguments with arrays made tensors; with an input signature, numbers and lists too."""
        if self.input_signature is not None:
            specs = self.input_signature
            if kwargs:
                bound = self._signature_of().bind(*args, **kwargs)
                args, kwargs = bound.args, bound.kwargs
            if len(args) < len(specs):
                raise TypeError(f"{getattr(self, '__name__', 'function')} takes {len(specs)} arguments by its input_signature, got {len(args)}")
            args = tuple(_fitted(a, s) for a, s in zip(args, specs)) + tuple(args[len(specs) :])
        convert = lambda x: convert_to_tensor(x) if isinstance(x, (np.ndarray, np.generic)) else x
        return nest.map_structure(convert, args), nest.map_structure(convert, kwargs)

    def _signature_of(self):
        if self._parameters is None:
            self._parameters = inspect.signature(self.python_function)
        return self._parameters

    def _trace(self, args, kwargs, leaves, signature):
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        given = engine.trace_begin([(list(raw_shape(x)), raw_dtype(x)) for x in tensors])
        try:
            inputs = iter(given)
            flat = [next(inputs) if isinstance(x, Tensor) else x for x in leaves]
            args, kwargs = nest.pack_sequence_as((args, kwargs), flat)
            traced = _Traced(self.python_function(*args, **kwargs))
            traced.program = engine.trace_end(traced.tensors)
        except BaseException:
            engine.trace_abort()
            raise
        traced.tensors = None
        self._traces[signature] = traced
        return traced

    def get_concrete_function(self, *args, **kwargs):
        """The program for arguments like these: tensors, specs or values."""
        if not args and not kwargs and self.input_signature is not None:
            args = self.input_signature
        make = lambda s: engine.full([1 if d is None else d for d in s.shape], 0, s.dtype.name) if isinstance(s, TensorSpec) else s
        args, kwargs = nest.map_structure(make, tuple(args)), nest.map_structure(make, kwargs)
        args, kwargs = self._prepared(args, kwargs)
        leaves, signature = _signature(args, kwargs)
        if signature not in self._traces:
            self._trace(args, kwargs, leaves, signature)
        return ConcreteFunction(self, self._traces[signature])

    def experimental_get_tracing_count(self):
        """How often it was traced."""
        return len(self._traces)

    def plan(self, *args, **kwargs):
        """The plan for arguments like these, without running it."""
        from plimsoll._plan import plan

        return plan(self, *args, **kwargs)

    def __repr__(self):
        return f"<plimsoll function {getattr(self, '__name__', self.python_function)}>"


class ConcreteFunction:
    """A function for one signature."""

    def __init__(self, function, traced):
        self._function, self._traced = function, traced
        self.program = traced.program

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    @property
    def structured_outputs(self):
        """Shapes and types of the results."""
        specs = iter(TensorSpec(shape, dtype) for shape, dtype in self.program.output_types)
        return nest.pack_sequence_as(self._traced.structure, [next(specs) if x is _PLACE else x for x in self._traced.flat])


def _fitted(value, spec):
    if not isinstance(spec, TensorSpec):
        return value
    x = convert_to_tensor(value, dtype_hint=spec.dtype)
    if not spec.is_compatible_with(x):
        raise TypeError(f"an argument of {TensorSpec.from_tensor(x)} does not fit the input_signature's {spec}")
    return x


def _signature(args, kwargs):
    leaves = nest.flatten((args, kwargs))
    parts = []
    for x in leaves:
        if isinstance(x, Tensor):
            parts.append((raw_shape(x), raw_dtype(x)))
        elif isinstance(x, StringTensor):
            parts.append((id(x), "string"))
        else:
            try:
                hash(x)
                parts.append((type(x), x) if isinstance(x, (bool, int, float)) else x)
            except TypeError:
                parts.append(id(x))
    return leaves, (_form(args), _form(kwargs), *parts)


def _form(structure):
    """How something is nested, as a key."""
    if not nest.is_nested(structure):
        return None
    if isinstance(structure, dict):
        return (dict, *((key, _form(structure[key])) for key in sorted(structure)))
    return (type(structure), *(_form(child) for child in structure))


def function(
    func=None,
    input_signature=None,
    autograph=True,
    jit_compile=None,
    reduce_retracing=False,
    experimental_implements=None,
    experimental_autograph_options=None,
    experimental_attributes=None,
    experimental_relax_shapes=None,
    experimental_compile=None,
    experimental_follow_type_hints=None,
):
    """Makes a Python function one that is traced and planned; usable as a decorator, with or without arguments."""
    if func is None:
        return lambda f: Function(f, input_signature, bool(reduce_retracing), autograph)
    return Function(func, input_signature, bool(reduce_retracing), autograph)


def py_function(func=None, inp=None, Tout=None, name=None):
    """A Python function of tensors, called with their values."""
    args = [convert_to_tensor(x) for x in inp]
    for x in args:
        x.numpy()
    return _typed(func(*args), Tout, False)


def numpy_function(func=None, inp=None, Tout=None, stateful=True, name=None):
    """A Python function of arrays."""
    return _typed(func(*(convert_to_tensor(x).numpy() for x in inp)), Tout, True)


def _typed(results, types, by_numpy):
    from plimsoll._types import as_dtype

    if not isinstance(types, (list, tuple)):
        if isinstance(results, (list, tuple)) and not types:
            return []
        return convert_to_tensor(np.asarray(results) if by_numpy and as_dtype(types) != "string" else results, as_dtype(types))
    results = results if isinstance(results, (list, tuple)) else [results]
    return [convert_to_tensor(r, as_dtype(t)) for r, t in zip(results, types)]
