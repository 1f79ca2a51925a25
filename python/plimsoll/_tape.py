"""`tf.GradientTape`: derivatives of what is recorded."""

import contextlib

import numpy as np

from plimsoll import _engine as engine
from plimsoll import nest
from plimsoll._core import Tensor
from plimsoll._core import _variable_value
from plimsoll._core import convert_to_tensor
from plimsoll._core import raw_dtype
from plimsoll._core import state


class UnconnectedGradients:
    """What stands for a gradient that is not there."""

    NONE, ZERO = "none", "zero"


def source_of(x):
    """What the engine differentiates by: its own tensors and variables; Keras' variables hold one."""
    held = getattr(x, "_value", None)
    return held if isinstance(held, engine.Variable) else x


class GradientTape:
    """Records operations for differentiation.

    Everything is recorded anyway; a tape says from where on, and keeps the record until it was asked for its gradients.

    >>> x = tf.Variable(3.0)
    >>> with tf.GradientTape() as tape:
    ...     y = x * x
    >>> tape.gradient(y, x).numpy()
    6.0
    """

    def __init__(self, persistent=False, watch_accessed_variables=True):
        self._persistent, self._automatic = persistent, watch_accessed_variables
        self._watched, self._variables = {}, {}
        self._open = self._used = self._held = False

    def __enter__(self):
        self._begin()
        return self

    def __exit__(self, *_):
        self._end()

    def _begin(self):
        if self._open:
            raise ValueError("Tape is still recording, This can happen if you try to re-enter an already-active tape.")
        tapes = _open_tapes()
        if not tapes and not engine.trace_depth():
            # What was asked for before is computed without the tape, and is a constant to it.
            engine.flush()
        if not self._held:
            engine.tape_begin()
            self._held = True
        tapes.append(self)
        self._open = True

    def _end(self):
        if self._open:
            _open_tapes().remove(self)
            self._open = False

    def _release(self):
        if self._held:
            self._held = False
            engine.tape_end()

    def __del__(self):
        try:
            self._release()
        except Exception:
            # Python may be going down.
            pass

    def watch(self, tensor):
        """Lets gradients be taken with respect to tensors that were there before."""
        for x in nest.flatten(tensor):
            x = source_of(x)
            if not isinstance(x, (Tensor, engine.Variable)):
                raise ValueError(f"Passed in object {x!r} of type {type(x).__name__!r}, not tf.Tensor or tf.Variable")
            if isinstance(x, Tensor) and "float" not in raw_dtype(x):
                import warnings

                warnings.warn(f"The dtype of the watched tensor must be floating (e.g. tf.float32), got {x.dtype!r}", stacklevel=2)
            self._watched[id(x)] = x

    def watched_variables(self):
        """The variables that were watched by name."""
        return tuple(x for x in self._watched.values() if isinstance(x, engine.Variable))

    @contextlib.contextmanager
    def stop_recording(self):
        """What is computed inside counts as constant."""
        state.stopped = getattr(state, "stopped", 0) + 1
        try:
            yield
        finally:
            state.stopped -= 1

    def reset(self):
        """Forgets what was watched."""
        self._watched.clear()

    def gradient(self, target, sources, output_gradients=None, unconnected_gradients=UnconnectedGradients.NONE):
        """The derivatives of the sum of `target` with respect to `sources`, in their structure; None where nothing depends."""
        if self._used and not self._persistent:
            raise RuntimeError("A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians)")
        self._used = True
        targets = [convert_to_tensor(t) for t in nest.flatten(target)]
        seeds = None
        if output_gradients is not None:
            seeds = [None if g is None else convert_to_tensor(g) for g in nest.flatten(output_gradients)]
        try:
            result = self._gradients(targets, nest.flatten(sources), seeds, unconnected_gradients)
        finally:
            if not self._persistent:
                self._end()
                self._release()
        return nest.pack_sequence_as(sources, result)

    def _gradients(self, targets, sources, seeds, unconnected):
        floats = [i for i, t in enumerate(targets) if "float" in raw_dtype(t)]
        seeds = None if seeds is None else [seeds[i] for i in floats]
        targets = [targets[i] for i in floats]
        wanted = [source_of(s) for s in sources]
        seen = [self._sees(s) for s in wanted]
        asked = [s for s, sees in zip(wanted, seen) if sees]
        found = iter(engine.gradients(targets, asked, seeds) if asked and targets else [None] * len(asked))
        result = [next(found) if sees else None for sees in seen]
        if unconnected == UnconnectedGradients.ZERO:
            result = [engine.full(s.shape, 0, s.dtype) if g is None else g for g, s in zip(result, wanted)]
        return result

    def _sees(self, source):
        if id(source) in self._watched:
            return True
        if isinstance(source, engine.Variable):
            return self._automatic and source.trainable
        if not isinstance(source, Tensor):
            raise ValueError(f"gradients are taken with respect to tensors and variables, not {type(source).__name__}")
        # What was computed under the tape stands in the record; constants and what was there before do not.
        return source.is_recorded

    def jacobian(self, target, sources, unconnected_gradients=UnconnectedGradients.NONE, parallel_iterations=None, experimental_use_pfor=True):
        """The derivative of every element of `target`, one row after another."""
        target, flat = convert_to_tensor(target), nest.flatten(sources)
        keep, self._persistent = self._persistent, True
        try:
            rows = [self._row(target, flat, i, unconnected_gradients) for i in range(target.size)]
        finally:
            self._persistent = keep
            if not keep:
                self._used = True
                self._end()
                self._release()
        result = []
        for i, source in enumerate(flat):
            parts = [row[i] for row in rows]
            if not parts or parts[0] is None:
                result.append(None)
                continue
            sizes = list(source_of(source).shape)
            stacked = engine.concat([engine.reshape(p, [1, *sizes]) for p in parts], 0)
            result.append(engine.reshape(stacked, [*target.shape, *sizes]))
        return nest.pack_sequence_as(sources, result)

    def _row(self, target, sources, i, unconnected):
        seed = np.zeros(target.size, np.float32)
        seed[i] = 1
        seed = engine.tensor(seed.reshape(tuple(target.shape)), raw_dtype(target))
        return self._gradients([target], sources, [seed], unconnected)

    def batch_jacobian(self, target, source, unconnected_gradients=UnconnectedGradients.NONE, parallel_iterations=None, experimental_use_pfor=True):
        """The jacobian of each row of `target` with respect to the same row of `source`."""
        target = convert_to_tensor(target)
        rows, sizes = target.shape[0], list(target.shape[1:])
        count = int(np.prod(sizes))
        keep, self._persistent = self._persistent, True
        parts = []
        try:
            for i in range(count):
                seed = np.zeros((rows, count), np.float32)
                seed[:, i] = 1
                seed = engine.tensor(seed.reshape(tuple(target.shape)), raw_dtype(target))
                parts.append(self._gradients([target], [source], [seed], unconnected_gradients)[0])
        finally:
            self._persistent = keep
            if not keep:
                self._used = True
                self._end()
                self._release()
        if parts[0] is None:
            return None
        own = list(source.shape[1:])
        stacked = engine.concat([engine.reshape(p, [rows, 1, *own]) for p in parts], 1)
        return engine.reshape(stacked, [rows, *sizes, *own])


def _open_tapes():
    if not hasattr(state, "tapes"):
        state.tapes = []
    return state.tapes


def gradients(ys, xs, grad_ys=None, name="gradients", gate_gradients=False, aggregation_method=None, stop_gradients=None, unconnected_gradients="none"):
    """The derivatives of `ys` with respect to `xs`, where both stand in what is being recorded."""
    targets = [convert_to_tensor(y) for y in nest.flatten(ys)]
    seeds = None if grad_ys is None else [None if g is None else convert_to_tensor(g) for g in nest.flatten(grad_ys)]
    return engine.gradients(targets, [source_of(x) for x in nest.flatten(xs)], seeds)


def custom_gradient(f=None):
    """Makes `f(*args) -> (result, gradient function)` a function whose derivative is that gradient function."""
    if f is None:
        return custom_gradient
    import functools

    @functools.wraps(f)
    def decorated(*args, **kwargs):
        tensors = [convert_to_tensor(x) if _is_number(x) else x for x in args]
        fixed = [engine.stop_gradient(x) if _is_float(x) else x for x in tensors]
        outputs, gradient = f(*fixed, **kwargs)
        flat = given_gradient([convert_to_tensor(y) for y in nest.flatten(outputs)], tensors, gradient)
        return nest.pack_sequence_as(outputs, flat)

    return decorated


def given_gradient(results, arguments, gradient):
    """The results with `gradient(*gradients of the results)` as their gradients with respect to the arguments that are floating-point tensors.

    The function is asked once, now; what it does is done again with what arrives, in every gradient that is asked for.
    """
    results = [engine.stop_gradient(y) for y in results]
    arriving = [engine.full(y.shape, 0, raw_dtype(y)) for y in results]
    leaving = gradient(*arriving)
    leaving = list(leaving) if isinstance(leaving, (list, tuple)) else [leaving]
    pairs = [(x, _like(g, x)) for x, g in zip(arguments, leaving) if g is not None and _is_float(x)]
    arguments, leaving = ([pair[i] for pair in pairs] for i in (0, 1))
    return engine.with_gradient(results, arguments, arriving, leaving)


def _like(gradient, x):
    """A gradient with the shape and type of what it is of."""
    gradient = convert_to_tensor(gradient, dtype=x.dtype)
    return gradient if gradient.shape == x.shape else engine.broadcast_to(gradient, x.shape)


def _is_number(x):
    return isinstance(x, (Tensor, engine.Variable, np.ndarray, float, int)) or _variable_value(x) is not None


def _is_float(x):
    return isinstance(x, Tensor) and "float" in raw_dtype(x)


def recompute_grad(f):
    """The function itself: what is recomputed is the planner's business."""
    return f


def no_gradient(op_type):
    """Accepted and without effect."""
