"""`tf.random`: numbers that are functions of a key. Stateless ones take the key, the others count.

The same key gives the same numbers wherever they are asked for. The numbers are this engine's own, not TensorFlow's.
"""

import threading

import numpy as np

from plimsoll import _engine as engine
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll._core import pair
from plimsoll._core import raw_dtype
from plimsoll._core import static_shape
from plimsoll._types import as_dtype

_lock = threading.Lock()


class _Global:
    """The seed of the process, and how many keys were taken: here, and in a variable that traced functions count in."""

    def __init__(self):
        self.reset(int.from_bytes(np.random.bytes(6), "little"))

    def reset(self, seed):
        self.seed, self.taken, self.counter = seed, 0, None


_global = _Global()
_of_seed = {}


def set_seed(seed):
    """Begins the sequence of random numbers anew."""
    with _lock:
        _global.reset(int(seed))
        _of_seed.clear()


def get_global_seed():
    """The seed of the process."""
    return _global.seed


def next_key(seed=None):
    """A key that was not used before; in a traced function one that is new whenever the function runs."""
    if engine.trace_depth():
        return _traced_key(seed)
    with _lock:
        if seed is None:
            _global.taken += 1
            number, first = _global.taken, _global.seed
        else:
            number = _of_seed[seed] = _of_seed.get(seed, 0) + 1
            first = _mixed(_global.seed, int(seed))
    return engine.tensor(np.array([first, number], np.int64))


def _traced_key(seed):
    if _global.counter is None:
        _global.counter = engine.Variable(np.array([_global.seed, 1 << 40], np.int64), "random_counter", False)
    key = _global.counter.assign_add(engine.tensor(np.array([0, 1], np.int64)))
    # Draws of one trace differ by what is added here; runs differ by the counter.
    return key if seed is None else engine.binary("add", key, engine.tensor(np.array([_mixed(1, int(seed)), 0], np.int64)))


def _mixed(a, b):
    return (a * 6364136223846793005 + b * 1442695040888963407 + 1013904223) % (1 << 62)


def _key_of(seed):
    """The key that the seed of a stateless function is."""
    return engine.cast(convert_to_tensor(seed), "int64")


def _normal(key, shape, mean, stddev, dtype):
    return _scaled(_draw(key, "normal", shape, dtype), mean, stddev)


def _draw(key, kind, shape, dtype):
    return engine.random(key, kind, static_shape(shape), as_dtype(dtype).name)


def _scaled(x, mean, stddev):
    if not (type(stddev) in (int, float) and stddev == 1):
        x = engine.binary("mul", *pair(x, stddev, "Mul"))
    if not (type(mean) in (int, float) and mean == 0):
        x = engine.binary("add", *pair(x, mean, "Add"))
    return x


def _uniform(key, shape, minval, maxval, dtype):
    dtype = as_dtype(dtype)
    if dtype.is_integer:
        if maxval is None:
            raise ValueError(f"Must specify maxval for integer dtype {dtype.name}")
        low, high = (engine.cast(convert_to_tensor(v), "float64") for v in (minval, maxval))
        part = engine.random(key, "uniform", static_shape(shape), "float64")
        span = engine.binary("sub", high, low)
        drawn = engine.unary("floor", engine.binary("mul", part, span))
        # A part that rounds up to 1 must not draw the end itself.
        drawn = engine.binary("min", drawn, engine.binary("sub", span, 1.0))
        return engine.cast(engine.binary("add", drawn, low), dtype.name)
    part = _draw(key, "uniform", shape, dtype)
    maxval = 1.0 if maxval is None else maxval
    if type(minval) in (int, float) and type(maxval) in (int, float):
        return _scaled(part, float(minval), float(maxval - minval))
    low, high = (convert_to_tensor(v, dtype_hint=dtype) for v in (minval, maxval))
    return engine.binary("add", engine.binary("mul", part, engine.binary("sub", high, low)), low)


@op
def normal(shape, mean=0.0, stddev=1.0, dtype="float32", seed=None, name=None):
    """Numbers of a normal distribution."""
    return _normal(next_key(seed), shape, mean, stddev, dtype)


@op
def truncated_normal(shape, mean=0.0, stddev=1.0, dtype="float32", seed=None, name=None):
    """Numbers of a normal distribution, none farther than two deviations from the mean."""
    return _scaled(_draw(next_key(seed), "truncated_normal", shape, dtype), mean, stddev)


@op
def uniform(shape, minval=0, maxval=None, dtype="float32", seed=None, name=None):
    """Numbers that are equally likely from `minval` up to but without `maxval`."""
    return _uniform(next_key(seed), shape, minval, maxval, dtype)


@op
def stateless_normal(shape, seed, mean=0.0, stddev=1.0, dtype="float32", name=None, alg="auto_select"):
    """Numbers of a normal distribution: the same for the same seed."""
    return _normal(_key_of(seed), shape, mean, stddev, dtype)


@op
def stateless_truncated_normal(shape, seed, mean=0.0, stddev=1.0, dtype="float32", name=None, alg="auto_select"):
    """Numbers of a truncated normal distribution: the same for the same seed."""
    return _scaled(_draw(_key_of(seed), "truncated_normal", shape, dtype), mean, stddev)


@op
def stateless_uniform(shape, seed, minval=0, maxval=None, dtype="float32", name=None, alg="auto_select"):
    """Equally likely numbers: the same for the same seed."""
    return _uniform(_key_of(seed), shape, minval, maxval, dtype)


def _categorical(key, logits, num_samples, dtype):
    logits = convert_to_tensor(logits)
    rows, classes = logits.shape
    part = engine.random(key, "uniform", [rows, int(num_samples), classes], raw_dtype(logits))
    # The class with the largest logit plus noise of Gumbel's distribution is drawn with its probability.
    part = engine.binary("max", part, 1e-30)
    noise = engine.unary("neg", engine.unary("log", engine.unary("neg", engine.unary("log", part))))
    scores = engine.binary("add", engine.reshape(logits, [rows, 1, classes]), noise)
    place = engine.argmax(scores, -1)
    name = as_dtype(dtype or "int64").name
    return place if name == "int64" else engine.cast(place, name)


@op
def categorical(logits, num_samples, dtype=None, seed=None, name=None):
    """Classes drawn with the probabilities that logits give."""
    return _categorical(next_key(seed), logits, num_samples, dtype)


@op
def stateless_categorical(logits, num_samples, seed, dtype="int64", name=None):
    """Classes drawn with the probabilities that logits give: the same for the same seed."""
    return _categorical(_key_of(seed), logits, num_samples, dtype)


def _shuffled(key, value):
    value = convert_to_tensor(value)
    draw = engine.random(key, "uniform", [value.shape[0]], "float64")
    return engine.gather(value, engine.sort(draw, 0, False)[1], 0)


@op
def shuffle(value, seed=None, name=None):
    """The rows in random order."""
    return _shuffled(next_key(seed), value)


@op
def stateless_shuffle(value, seed, alg="auto_select", name=None):
    """The rows in random order: the same for the same seed."""
    return _shuffled(_key_of(seed), value)


def _on_host(key, draw, dtype):
    generator = np.random.Generator(np.random.Philox(key=[int(v) & (2**64 - 1) for v in key.numpy()]))
    return engine.tensor(np.asarray(draw(generator)), as_dtype(dtype).name)


@op
def gamma(shape, alpha, beta=None, dtype="float32", seed=None, name=None):
    """Numbers of a gamma distribution; on the host."""
    alpha = np.asarray(convert_to_tensor(alpha).numpy())
    scale = 1.0 if beta is None else 1.0 / np.asarray(convert_to_tensor(beta).numpy())
    sizes = [*static_shape(shape), *np.broadcast(alpha, scale).shape]
    return _on_host(next_key(seed), lambda g: g.gamma(alpha, scale, sizes), dtype)


@op
def poisson(shape, lam, dtype="float32", seed=None, name=None):
    """Numbers of a Poisson distribution; on the host."""
    lam = np.asarray(convert_to_tensor(lam).numpy())
    return _on_host(next_key(seed), lambda g: g.poisson(lam, [*static_shape(shape), *lam.shape]), dtype)


class Algorithm:
    """Names of algorithms, of which there is one here."""

    PHILOX, THREEFRY, AUTO_SELECT = 1, 2, 3


class Generator:
    """Random numbers with a state of their own, which traced functions advance too."""

    def __init__(self, state=None, alg=None, copy_from=None):
        if copy_from is not None:
            state = copy_from._state.numpy()
        self._state = engine.Variable(np.resize(np.asarray(state, np.int64).reshape(-1), 2), "generator", False)

    @classmethod
    def from_seed(cls, seed, alg=None):
        """A generator whose numbers a seed decides."""
        return cls([_mixed(7, int(seed)), 0])

    @classmethod
    def from_non_deterministic_state(cls, alg=None):
        """A generator with numbers that nobody can foresee."""
        return cls([int.from_bytes(np.random.bytes(6), "little"), 0])

    @classmethod
    def from_state(cls, state, alg=None):
        """A generator that goes on where another was."""
        return cls(np.asarray(state))

    @property
    def state(self):
        """Where it is."""
        return self._state.value()

    def reset_from_seed(self, seed):
        """Begins anew."""
        self._state.assign(engine.tensor(np.array([_mixed(7, int(seed)), 0], np.int64)))

    def _key(self):
        return self._state.assign_add(engine.tensor(np.array([0, 1], np.int64)))

    def make_seeds(self, count=1):
        """Seeds for stateless functions, one in each column."""
        return engine.cast(engine.binary("mul", engine.random(self._key(), "uniform", [2, int(count)], "float64"), 2.0**53), "int64")

    def split(self, count=1):
        """Several generators whose numbers do not depend on each other."""
        seeds = self.make_seeds(count).numpy()
        return [Generator(seeds[:, i]) for i in range(count)]

    def normal(self, shape, mean=0.0, stddev=1.0, dtype="float32", name=None):
        """Numbers of a normal distribution."""
        return _normal(self._key(), shape, mean, stddev, dtype)

    def truncated_normal(self, shape, mean=0.0, stddev=1.0, dtype="float32", name=None):
        """Numbers of a truncated normal distribution."""
        return _scaled(_draw(self._key(), "truncated_normal", shape, dtype), mean, stddev)

    def uniform(self, shape, minval=0, maxval=None, dtype="float32", name=None):
        """Equally likely numbers."""
        return _uniform(self._key(), shape, minval, maxval, dtype)


_default = []


def get_global_generator():
    """The generator of the process."""
    if not _default:
        _default.append(Generator.from_seed(_global.seed))
    return _default[0]


def set_global_generator(generator):
    """Makes this the generator of the process."""
    _default[:] = [generator]


def create_rng_state(seed, alg=None):
    """The state of a generator with this seed."""
    return Generator.from_seed(seed).state


class experimental:
    """Names that were once experimental."""

    Generator = Generator
    get_global_generator = staticmethod(get_global_generator)
    stateless_shuffle = staticmethod(stateless_shuffle)

    @staticmethod
    def stateless_split(seed, num=2, alg=None):
        """Several seeds made of one."""
        key = _key_of(seed)
        return engine.cast(engine.binary("mul", engine.random(key, "uniform", [num, 2], "float64"), 2.0**31), "int32")


split = experimental.stateless_split
