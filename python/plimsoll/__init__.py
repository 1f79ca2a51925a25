"""Trains neural networks inside a memory limit that you set.

`import plimsoll as tf`: the names of TensorFlow in common use. Tensors look eager; what is asked of them is recorded,
planned under the limit, and run when a value is looked at. `plimsoll.keras` is Keras 3 on this engine, loaded when it is
first touched.
"""

import importlib as _importlib

from plimsoll import _engine as _engine
from plimsoll import _core
from plimsoll import _operators

_core.install()
_operators.install(_core.Tensor)

from plimsoll._types import BY_NAME as _TYPES
from plimsoll._types import DType as DType
from plimsoll._types import TensorShape as TensorShape
from plimsoll._types import TensorSpec as TensorSpec
from plimsoll._types import TypeSpec as TypeSpec
from plimsoll._types import as_dtype as as_dtype
from plimsoll._array import bitcast, boolean_mask, broadcast_dynamic_shape, broadcast_static_shape, broadcast_to, concat
from plimsoll._array import argsort, dynamic_partition, dynamic_stitch, ensure_shape, expand_dims, eye, fill, gather, gather_nd, guarantee_const
from plimsoll._array import identity, meshgrid, one_hot, ones, ones_like, pad, parallel_stack, rank, repeat, reshape, reverse
from plimsoll._array import roll, scatter_nd, searchsorted, sequence_mask, shape, shape_n, size, slice, sort, split, squeeze, stack
from plimsoll._array import stop_gradient, strided_slice, tensor_scatter_nd_add, tensor_scatter_nd_max, tensor_scatter_nd_min
from plimsoll._array import tensor_scatter_nd_sub, tensor_scatter_nd_update, tile, transpose, unique, unique_with_counts, unstack
from plimsoll._array import unravel_index, where, zeros, zeros_like
from plimsoll._control import Assert, case, cond, control_dependencies, device, executing_eagerly, foldl, foldr
from plimsoll._control import get_static_value, group, inside_function, map_fn, name_scope, no_op, scan, switch_case
from plimsoll._control import timestamp, vectorized_map, while_loop
from plimsoll._control import print_ as print
from plimsoll._control import tuple_ as tuple
from plimsoll._core import Tensor, constant, convert_to_tensor, is_tensor
from plimsoll._function import function, numpy_function, py_function
from plimsoll._module import Module
from plimsoll._tape import GradientTape, UnconnectedGradients, custom_gradient, gradients, no_gradient, recompute_grad
from plimsoll._variable import Variable, VariableAggregation, VariableSynchronization, init_scope
from plimsoll.linalg import clip_by_global_norm, clip_by_norm, einsum, matmul, norm, tensordot
from plimsoll.math import abs, acos, acosh, add, add_n, argmax, argmin, asin, asinh, atan, atan2, atanh, cast, clip_by_value
from plimsoll.math import cos, cosh, cumsum, divide, equal, exp, floor, histogram_fixed_width, greater, greater_equal, less, less_equal, linspace
from plimsoll.math import logical_and, logical_not, logical_or, maximum, minimum, multiply, negative, not_equal, pow, range
from plimsoll.math import reduce_all, reduce_any, reduce_logsumexp, reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum
from plimsoll.math import round, saturate_cast, sigmoid, sign, sin, sinh, sqrt, square, subtract, tan, tanh, truediv
from plimsoll.errors import WouldNotFitError

__version__ = "0.1.0"
# The version of TensorFlow whose names these are.
VERSION = "2.21.0"
newaxis = None
realdiv = truediv

bfloat16, float16, float32, float64 = (_TYPES[n] for n in ("bfloat16", "float16", "float32", "float64"))
half, double = float16, float64
int8, int16, int32, int64 = (_TYPES[n] for n in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (_TYPES[n] for n in ("uint8", "uint16", "uint32", "uint64"))
complex64, complex128, string, variant, resource = (_TYPES[n] for n in ("complex64", "complex128", "string", "variant", "resource"))

# Loaded when they are first touched.
_MODULES = (
    "autograph bitwise compat config data debugging distribute dtypes errors experimental image io keras linalg lookup math "
    "mixed_precision nest nn random strings summary test train version"
).split()
_LAZY = {
    "set_memory_limit": "_limit",
    "memory_limit": "_limit",
    "memory_info": "_limit",
    "plan": "_plan",
    "as_string": "strings",
    "IndexedSlices": "_slices",
    "TensorArray": "_slices",
    "random_normal_initializer": "_initializers",
    "random_uniform_initializer": "_initializers",
    "zeros_initializer": "_initializers",
    "ones_initializer": "_initializers",
    "constant_initializer": "_initializers",
}


def __getattr__(name):
    if name == "bool":
        return _TYPES["bool"]
    if name == "keras":
        from plimsoll._keras import load

        return load()
    if name in _LAZY:
        return getattr(_importlib.import_module(f"plimsoll.{_LAZY[name]}"), name)
    if name in _MODULES:
        return _importlib.import_module(f"plimsoll.{name}")
    raise AttributeError(f"plimsoll has no '{name}'; what it has of tf is listed in docs/python.md")


def __dir__():
    return sorted({*globals(), "bool", "keras", *_MODULES, *_LAZY})
