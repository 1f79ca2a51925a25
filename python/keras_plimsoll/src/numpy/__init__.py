"""`keras.ops.numpy`: NumPy's functions with Keras' types, composed from the engine's primitives. Each file stands on those imported above it here."""

from keras_plimsoll.src.numpy.types import along, axes_of, is_float, like, not_bool, part, promoted, scalar, sum_type, to_float
from keras_plimsoll.src.numpy.arithmetic import abs, absolute, add, arccos, arcsin, arctan, arctan2, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_not, bitwise_or
from keras_plimsoll.src.numpy.arithmetic import bitwise_right_shift, bitwise_xor, ceil, cos, cosh, divide, divide_no_nan, equal, exp, expm1, float_power, floor
from keras_plimsoll.src.numpy.arithmetic import floor_divide, fmax, fmin, fmod, gcd, greater, greater_equal, heaviside, hypot, isnan, lcm, ldexp
from keras_plimsoll.src.numpy.arithmetic import left_shift, less, less_equal, log, log1p, logaddexp, logaddexp2, logical_and, logical_not, logical_or, logical_xor, maximum
from keras_plimsoll.src.numpy.arithmetic import minimum, mod, multiply, negative, nextafter, not_equal, power, right_shift, sin, sinh, sqrt, square
from keras_plimsoll.src.numpy.arithmetic import subtract, tan, tanh, true_divide, where
from keras_plimsoll.src.numpy.elements import angle, arccosh, arcsinh, arctanh, cbrt, clip, conj, conjugate, copy, deg2rad, exp2, fabs
from keras_plimsoll.src.numpy.elements import float_info, i0, imag, isfinite, isinf, isneginf, isposinf, isreal, log10, log2, nan_to_num, rad2deg
from keras_plimsoll.src.numpy.elements import real, reciprocal, round, sign, signbit, sinc, trunc, widened
from keras_plimsoll.src.numpy.shape import append, array_split, atleast_1d, atleast_2d, atleast_3d, broadcast_to, broadcast_together, concatenate, dsplit, dstack, expand_dims, flip
from keras_plimsoll.src.numpy.shape import fliplr, flipud, hsplit, hstack, moveaxis, ndim, pad, ravel, repeat, reshape, roll, rot90
from keras_plimsoll.src.numpy.shape import shape_of, size, split, squeeze, stack, swapaxes, tile, transpose, vsplit, vstack
from keras_plimsoll.src.numpy.reduce import all, amax, amin, any, argmax, argmin, average, count_nonzero, cumprod, cumsum, diff, max
from keras_plimsoll.src.numpy.reduce import mean, min, nanargmax, nanargmin, nancumprod, nancumsum, nanmax, nanmean, nanmin, nanprod, nanstd, nansum
from keras_plimsoll.src.numpy.reduce import nanvar, prod, ptp, std, sum, trapezoid, var, without_nan
from keras_plimsoll.src.numpy.make import arange, array, bartlett, blackman, diag, diagflat, diagonal, empty, empty_like, eye, full, full_like
from keras_plimsoll.src.numpy.make import geomspace, hamming, hanning, identity, kaiser, linspace, logspace, meshgrid, ones, ones_like, trace, tri
from keras_plimsoll.src.numpy.make import tril, triu, vander, zeros, zeros_like
from keras_plimsoll.src.numpy.order import any_nan_possible, argpartition, argsort, bincount, digitize, histogram, isin, median, nanmedian, nanpercentile, nanquantile, nonzero
from keras_plimsoll.src.numpy.order import percentile, quantile, searchsorted, sort, unique
from keras_plimsoll.src.numpy.choose import from_front, select, take, take_along_axis, unravel_index
from keras_plimsoll.src.numpy.products import allclose, corrcoef, correlate, cross, dot, einsum, inner, isclose, kron, matmul, outer, slogdet
from keras_plimsoll.src.numpy.products import tensordot, vdot, vectorize, view
