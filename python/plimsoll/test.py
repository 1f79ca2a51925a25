"""`tf.test`: what tests ask."""

import unittest

import numpy as np

from plimsoll._core import convert_to_tensor


def is_gpu_available(cuda_only=False, min_cuda_compute_capability=None):
    """There is none."""
    return False


def gpu_device_name():
    """There is none."""
    return ""


def is_built_with_cuda():
    """It is not."""
    return False


is_built_with_gpu_support = is_built_with_rocm = is_built_with_xla = is_built_with_cuda


class TestCase(unittest.TestCase):
    """Comparisons of tensors."""

    def assertAllClose(self, a, b, rtol=1e-6, atol=1e-6, msg=None):
        """Both are near."""
        np.testing.assert_allclose(convert_to_tensor(a).numpy(), convert_to_tensor(b).numpy(), rtol, atol, err_msg=msg or "")

    def assertAllEqual(self, a, b, msg=None):
        """Both are the same."""
        np.testing.assert_array_equal(convert_to_tensor(a).numpy(), convert_to_tensor(b).numpy(), msg or "")

    def evaluate(self, tensors):
        """The value."""
        return convert_to_tensor(tensors).numpy()


main = unittest.main
