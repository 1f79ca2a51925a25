"""First values of variables."""

import math

from plimsoll import _array
from plimsoll import random
from plimsoll._core import constant


class zeros_initializer:
    """Zeros."""

    def __init__(self, dtype="float32"):
        pass

    def __call__(self, shape, dtype="float32", **kwargs):
        return _array.zeros(shape, dtype)


class ones_initializer(zeros_initializer):
    """Ones."""

    def __call__(self, shape, dtype="float32", **kwargs):
        return _array.ones(shape, dtype)


class constant_initializer:
    """The same values always."""

    def __init__(self, value=0, dtype="float32", support_partition=False):
        self._value = value

    def __call__(self, shape, dtype="float32", **kwargs):
        return constant(self._value, dtype, shape)


class random_normal_initializer:
    """Normally distributed numbers."""

    def __init__(self, mean=0.0, stddev=0.05, seed=None, dtype="float32"):
        self._mean, self._deviation, self._seed = mean, stddev, seed

    def __call__(self, shape, dtype="float32", **kwargs):
        return random.normal(shape, self._mean, self._deviation, dtype, self._seed)


class truncated_normal_initializer(random_normal_initializer):
    """Normally distributed numbers, none far from the mean."""

    def __call__(self, shape, dtype="float32", **kwargs):
        return random.truncated_normal(shape, self._mean, self._deviation, dtype, self._seed)


class random_uniform_initializer:
    """Equally likely numbers."""

    def __init__(self, minval=-0.05, maxval=0.05, seed=None, dtype="float32"):
        self._least, self._most, self._seed = minval, maxval, seed

    def __call__(self, shape, dtype="float32", **kwargs):
        return random.uniform(shape, self._least, self._most, dtype, self._seed)


class glorot_uniform_initializer:
    """Equally likely numbers of a size that suits the numbers of inputs and outputs."""

    def __init__(self, seed=None, dtype="float32"):
        self._seed = seed

    def __call__(self, shape, dtype="float32", **kwargs):
        shape = [int(d) for d in shape]
        field = math.prod(shape[:-2])
        ends = (shape[-2] + shape[-1]) * field if len(shape) > 1 else 2 * (shape[0] if shape else 1)
        bound = math.sqrt(6.0 / ends)
        return random.uniform(shape, -bound, bound, dtype, self._seed)
