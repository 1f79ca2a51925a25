"""`tf.debugging`: assertions."""

import numpy as np

from plimsoll import math
from plimsoll._core import convert_to_tensor
from plimsoll._core import is_tensor as is_tensor
from plimsoll.errors import InvalidArgumentError


def _holds(truth, message, *values):
    if not bool(np.all(convert_to_tensor(truth).numpy())):
        shown = ", ".join(str(convert_to_tensor(v).numpy()) for v in values)
        raise InvalidArgumentError(None, None, f"{message or 'Condition does not hold element-wise'}: {shown}")


def _compare(name, function, sign):
    def check(x, y, message=None, summarize=None, name=None):
        _holds(function(x, y), message or f"Condition x {sign} y did not hold", x, y)

    check.__name__, check.__doc__ = name, f"Raises unless x {sign} y everywhere."
    return check


assert_equal = _compare("assert_equal", math.equal, "==")
assert_none_equal = _compare("assert_none_equal", math.not_equal, "!=")
assert_less = _compare("assert_less", math.less, "<")
assert_less_equal = _compare("assert_less_equal", math.less_equal, "<=")
assert_greater = _compare("assert_greater", math.greater, ">")
assert_greater_equal = _compare("assert_greater_equal", math.greater_equal, ">=")


def assert_positive(x, message=None, summarize=None, name=None):
    """Raises unless x > 0 everywhere."""
    _holds(math.greater(x, 0), message or "x > 0 did not hold", x)


def assert_non_negative(x, message=None, summarize=None, name=None):
    """Raises unless x >= 0 everywhere."""
    _holds(math.greater_equal(x, 0), message or "x >= 0 did not hold", x)


def assert_negative(x, message=None, summarize=None, name=None):
    """Raises unless x < 0 everywhere."""
    _holds(math.less(x, 0), message or "x < 0 did not hold", x)


def assert_near(x, y, rtol=None, atol=None, message=None, summarize=None, name=None):
    """Raises unless x and y are near."""
    a, b = convert_to_tensor(x), convert_to_tensor(y)
    tolerance = 10 * np.finfo(a.dtype.as_numpy_dtype).eps
    near = np.allclose(a.numpy(), b.numpy(), rtol if rtol is not None else tolerance, atol if atol is not None else tolerance)
    _holds(near, message or "x and y are not near", a, b)


def assert_all_finite(x, message, name=None):
    """The tensor, which must be finite everywhere."""
    x = convert_to_tensor(x)
    if not np.all(np.isfinite(x.numpy())):
        raise InvalidArgumentError(None, None, f"{message} : Tensor had NaN or Inf values")
    return x


check_numerics = assert_all_finite


def assert_shapes(shapes, data=None, summarize=None, message=None, name=None):
    """Raises unless tensors have these shapes; letters stand for equal sizes."""
    known = {}
    for x, sizes in shapes.items() if isinstance(shapes, dict) else shapes:
        x = convert_to_tensor(x)
        if len(x.shape) != len(sizes):
            raise ValueError(f"{message or ''} a tensor of shape {x.shape} where {sizes} is wanted")
        for found, wanted in zip(x.shape, sizes):
            expected = known.setdefault(wanted, found) if isinstance(wanted, str) else wanted
            if expected is not None and expected != found:
                raise ValueError(f"{message or ''} a tensor of shape {x.shape} where {sizes} is wanted")


def assert_rank(x, rank, message=None, name=None):
    """Raises unless there are so many axes."""
    x = convert_to_tensor(x)
    if len(x.shape) != int(rank):
        raise ValueError(f"{message or ''} Tensor must have rank {rank}. Received rank {len(x.shape)}, shape {x.shape}")


def assert_rank_at_least(x, rank, message=None, name=None):
    """Raises unless there are at least so many axes."""
    x = convert_to_tensor(x)
    if len(x.shape) < int(rank):
        raise ValueError(f"{message or ''} Tensor must have rank at least {rank}. Received rank {len(x.shape)}, shape {x.shape}")


def assert_type(tensor, tf_type, message=None, name=None):
    """Raises unless it has this type."""
    if convert_to_tensor(tensor).dtype != tf_type:
        raise TypeError(f"{message or ''} tensor must be of type {tf_type!r}")


def assert_scalar(tensor, message=None, name=None):
    """The tensor, which must have no axes."""
    assert_rank(tensor, 0, message)
    return tensor


def enable_check_numerics(*args, **kwargs):
    """Accepted: losses that are not finite are reported by training itself."""


def disable_check_numerics():
    """Accepted."""


def set_log_device_placement(enabled):
    """Accepted: there is one device."""


class experimental:
    """Accepted."""

    @staticmethod
    def enable_dump_debug_info(*args, **kwargs):
        """Not supported."""
        raise NotImplementedError("dumps of debug information are not supported: use plimsoll's report")
