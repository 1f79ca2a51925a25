"""`tf.nn`: activations, losses, convolutions, pooling and norms."""

import math as python_math

import numpy as np

from plimsoll import _engine as engine
from plimsoll import math
from plimsoll._core import Tensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll._core import pair
from plimsoll._core import raw_dtype
from plimsoll.errors import InvalidArgumentError
from plimsoll.math import axes_of
from plimsoll.math import in_top_k as in_top_k
from plimsoll.math import l2_normalize as l2_normalize
from plimsoll.math import log_sigmoid as log_sigmoid
from plimsoll.math import sigmoid as sigmoid
from plimsoll.math import softplus as softplus
from plimsoll.math import tanh as tanh
from plimsoll.math import top_k as top_k


@op
def relu(features, name=None):
    """The larger of x and 0."""
    x = convert_to_tensor(features)
    return engine.unary("relu", x) if "float" in raw_dtype(x) else engine.binary("max", x, 0)


@op
def relu6(features, name=None):
    """x between 0 and 6."""
    return engine.binary("min", relu(features), 6.0)


@op
def leaky_relu(features, alpha=0.2, name=None):
    """x, and `alpha` times x where x is negative."""
    x = convert_to_tensor(features)
    return engine.select(engine.binary("gt", x, 0.0), x, engine.binary("mul", x, float(alpha)))


@op
def elu(features, name=None):
    """x, and exp(x) - 1 where x is negative."""
    x = convert_to_tensor(features)
    low = engine.unary("expm1", engine.binary("min", x, 0.0))
    return engine.select(engine.binary("gt", x, 0.0), x, low)


@op
def selu(features, name=None):
    """The scaled exponential linear unit."""
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    x = convert_to_tensor(features)
    low = engine.binary("mul", engine.unary("expm1", engine.binary("min", x, 0.0)), alpha)
    return engine.binary("mul", engine.select(engine.binary("gt", x, 0.0), x, low), scale)


@op
def gelu(features, approximate=False, name=None):
    """x times the normal distribution's probability of being below x."""
    x = convert_to_tensor(features)
    if approximate:
        cube = engine.binary("mul", x, engine.unary("square", x))
        inner = engine.binary("mul", engine.binary("add", x, engine.binary("mul", cube, 0.044715)), python_math.sqrt(2 / python_math.pi))
        part = engine.unary("tanh", inner)
    else:
        part = engine.unary("erf", engine.binary("mul", x, python_math.sqrt(0.5)))
    return engine.binary("mul", engine.binary("mul", x, 0.5), engine.binary("add", part, 1.0))


@op
def silu(features, beta=1.0):
    """x sigmoid(beta x)."""
    x = convert_to_tensor(features)
    inner = x if beta == 1.0 else engine.binary("mul", *pair(x, beta, "Mul"))
    return engine.binary("mul", x, engine.unary("sigmoid", inner))


swish = silu


@op
def softsign(features, name=None):
    """x / (1 + |x|)."""
    x = convert_to_tensor(features)
    return engine.binary("div", x, engine.binary("add", engine.unary("abs", x), 1.0))


@op
def softmax(logits, axis=None, name=None):
    """exp(x) over its sum along an axis."""
    return engine.softmax(convert_to_tensor(logits), -1 if axis is None else int(axis))


@op
def log_softmax(logits, axis=None, name=None):
    """The logarithm of softmax."""
    return engine.log_softmax(convert_to_tensor(logits), -1 if axis is None else int(axis))


@op
def sigmoid_cross_entropy_with_logits(labels=None, logits=None, name=None):
    """The cross-entropy of each label with the sigmoid of each logit."""
    logits, labels = pair(logits, labels, "SigmoidCrossEntropy")
    # max(x, 0) - x z + log(1 + exp(-|x|))
    above = engine.unary("relu", logits)
    tail = engine.unary("softplus", engine.unary("neg", engine.unary("abs", logits)))
    return engine.binary("add", engine.binary("sub", above, engine.binary("mul", logits, labels)), tail)


@op
def weighted_cross_entropy_with_logits(labels, logits, pos_weight, name=None):
    """As `sigmoid_cross_entropy_with_logits`, with positive labels counted `pos_weight` times."""
    labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
    weight = math.add(1.0, math.multiply(math.subtract(pos_weight, 1.0), labels))
    tail = math.multiply(weight, math.add(softplus(math.negative(math.abs(logits))), relu(math.negative(logits))))
    return math.add(math.multiply(math.subtract(1.0, labels), logits), tail)


@op
def softmax_cross_entropy_with_logits(labels, logits, axis=-1, name=None):
    """The cross-entropy of each row of probabilities with the softmax of logits."""
    logits, labels = pair(logits, labels, "SoftmaxCrossEntropy")
    axis = axis % logits.ndim
    if axis != logits.ndim - 1:
        order = [*(i for i in range(logits.ndim) if i != axis), axis]
        logits, labels = engine.transpose(logits, order), engine.transpose(labels, order)
    return engine.cross_entropy(logits, labels)


@op
def sparse_softmax_cross_entropy_with_logits(labels, logits, name=None):
    """The cross-entropy of each label with the softmax of a row of logits."""
    logits, labels = convert_to_tensor(logits), convert_to_tensor(labels)
    if labels.ndim != logits.ndim - 1:
        raise InvalidArgumentError(None, None, f"labels must have one axis less than logits, got {labels.shape} and {logits.shape}")
    return engine.sparse_cross_entropy(logits, labels)


@op
def l2_loss(t, name=None):
    """Half the sum of squares."""
    return engine.binary("mul", engine.reduce("sum", engine.unary("square", convert_to_tensor(t)), None, False), 0.5)


@op
def log_poisson_loss(targets, log_input, compute_full_loss=False, name=None):
    """The loss of Poisson regression."""
    return math.subtract(math.exp(log_input), math.multiply(log_input, targets))


@op
def compute_average_loss(per_example_loss, sample_weight=None, global_batch_size=None):
    """The sum of losses over the size of the whole batch."""
    loss = convert_to_tensor(per_example_loss)
    if sample_weight is not None:
        loss = math.multiply(loss, math.cast(sample_weight, loss.dtype))
    size = loss.shape[0] if global_batch_size is None else global_batch_size
    total = engine.reduce("sum", loss, None, False)
    if isinstance(size, Tensor):
        return engine.binary("div", total, engine.cast(size, raw_dtype(total)))
    return engine.binary("div", total, float(size))


def scale_regularization_loss(regularization_loss):
    """The sum over replicas, of which there is one."""
    return math.reduce_sum(regularization_loss)


@op
def bias_add(value, bias, data_format=None, name=None):
    """A number for each channel added."""
    value, bias = pair(value, bias, "BiasAdd")
    if data_format is not None and data_format.upper().startswith("NC") and value.ndim > 2:
        bias = engine.reshape(bias, [1, bias.shape[0], *([1] * (value.ndim - 2))])
    return engine.binary("add", value, bias)


@op
def dropout(x, rate, noise_shape=None, seed=None, name=None):
    """Elements set to 0 with a probability, the others scaled up."""
    from plimsoll import random

    return _dropped(convert_to_tensor(x), rate, noise_shape, random.next_key(seed))


@op
def stateless_dropout(x, rate, seed, rng_alg="auto_select", noise_shape=None, name=None):
    """As `dropout`: the same elements for the same seed."""
    from plimsoll import random

    return _dropped(convert_to_tensor(x), rate, noise_shape, random._key_of(seed))


def _dropped(x, rate, noise_shape, key):
    rate = float(rate)
    if not 0 <= rate < 1:
        raise ValueError(f"`rate` must be a scalar in the range [0, 1), got {rate}")
    if rate == 0:
        return x
    sizes = x.shape if noise_shape is None else [d if n is None else n for d, n in zip(x.shape, noise_shape)]
    keep = engine.binary("ge", engine.random(key, "uniform", list(sizes), "float32"), rate)
    return engine.select(keep, engine.binary("mul", x, 1.0 / (1.0 - rate)), engine.full((), 0, raw_dtype(x)))


@op
def moments(x, axes, shift=None, keepdims=False, name=None):
    """Mean and variance over axes."""
    x, axes = convert_to_tensor(x), axes_of(axes)
    mean = engine.reduce("mean", x, axes, True)
    off = engine.unary("square", engine.binary("sub", x, mean))
    variance = engine.reduce("mean", off, axes, keepdims)
    return (mean if keepdims else engine.reduce("mean", x, axes, False)), variance


@op
def batch_normalization(x, mean, variance, offset, scale, variance_epsilon, name=None):
    """(x - mean) / sqrt(variance + epsilon), scaled and shifted."""
    x, mean = pair(x, mean, "Sub")
    factor = engine.unary("rsqrt", engine.binary("add", convert_to_tensor(variance), float(variance_epsilon)))
    if scale is not None:
        factor = engine.binary("mul", factor, convert_to_tensor(scale))
    shift = engine.unary("neg", engine.binary("mul", mean, factor))
    if offset is not None:
        shift = engine.binary("add", shift, convert_to_tensor(offset))
    return engine.binary("add", engine.binary("mul", x, factor), shift)


@op
def embedding_lookup(params, ids, max_norm=None, name=None):
    """Rows of a table."""
    return engine.gather(convert_to_tensor(params), convert_to_tensor(ids), 0)


def _per_axis(value, n, channels_last):
    """Strides and the like as `n` numbers, from one, `n`, or one for each axis of the image."""
    if value is None:
        return [1] * n
    if isinstance(value, (int, np.integer)):
        return [int(value)] * n
    value = [int(v) for v in value]
    if len(value) == 1:
        return value * n
    if len(value) == n:
        return value
    return value[1:-1] if channels_last else value[2:]


def _padding(padding, n, channels_last):
    if isinstance(padding, str):
        return padding.lower()
    sides = [tuple(int(v) for v in side) for side in padding]
    return sides if len(sides) == n else (sides[1:-1] if channels_last else sides[2:])


def _channels_last(x, data_format):
    """The image with its channels last, and how to turn a result back."""
    if data_format is None or not data_format.upper().startswith("NC"):
        return x, lambda y: y
    n = x.ndim
    return engine.transpose(x, [0, *range(2, n), 1]), lambda y: engine.transpose(y, [0, n - 1, *range(1, n - 1)])


def _is_last(data_format):
    return data_format is None or not data_format.upper().startswith("NC")


@op
def convolution(input, filters, strides=None, padding="VALID", data_format=None, dilations=None, name=None):
    """Convolution of images [batch, spatial.., in] with filters [spatial.., in / groups, out]."""
    x, filters = pair(input, filters, "Conv")
    x, back = _channels_last(x, data_format)
    n, last = x.ndim - 2, _is_last(data_format)
    groups = x.shape[-1] // filters.shape[-2] if filters.shape[-2] else 1
    y = engine.conv(x, filters, _per_axis(strides, n, last), _padding(padding, n, last), _per_axis(dilations, n, last), max(groups, 1))
    return back(y)


@op
def conv1d(input, filters, stride, padding, data_format="NWC", dilations=None, name=None):
    """Convolution along one axis."""
    return convolution(input, filters, stride, padding, data_format, dilations)


@op
def conv2d(input, filters, strides, padding, data_format="NHWC", dilations=None, name=None):
    """Convolution along two axes."""
    return convolution(input, filters, strides, padding, data_format, dilations)


@op
def conv3d(input, filters, strides, padding, data_format="NDHWC", dilations=None, name=None):
    """Convolution along three axes."""
    return convolution(input, filters, strides, padding, data_format, dilations)


@op
def depthwise_conv2d(input, filter, strides, padding, data_format=None, dilations=None, name=None):
    """Convolution of each channel with filters of its own, [height, width, channels, multiplier]."""
    x, filter = pair(input, filter, "DepthwiseConv2d")
    x, back = _channels_last(x, data_format)
    height, width, channels, times = filter.shape
    kernel = engine.reshape(filter, [height, width, 1, channels * times])
    last = _is_last(data_format)
    return back(engine.conv(x, kernel, _per_axis(strides, 2, last), _padding(padding, 2, last), _per_axis(dilations, 2, last), channels))


@op
def separable_conv2d(input, depthwise_filter, pointwise_filter, strides, padding, data_format=None, dilations=None, name=None):
    """A depthwise convolution, then one of single cells."""
    deep = depthwise_conv2d(input, depthwise_filter, strides, padding, data_format, dilations)
    return convolution(deep, pointwise_filter, 1, "VALID", data_format)


def _conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations):
    x, filters = pair(input, filters, "ConvTranspose")
    x, back = _channels_last(x, data_format)
    n, last = x.ndim - 2, _is_last(data_format)
    sizes = None
    if output_shape is not None:
        sizes = [int(v) for v in (output_shape.numpy() if hasattr(output_shape, "numpy") else output_shape)]
        sizes = sizes[1:-1] if last else sizes[2:]
    y = engine.conv_transpose(x, filters, _per_axis(strides, n, last), _padding(padding, n, last), _per_axis(dilations, n, last), 1, sizes)
    return back(y)


@op
def conv1d_transpose(input, filters, output_shape, strides, padding="SAME", data_format="NWC", dilations=None, name=None):
    """The transpose of `conv1d`."""
    return _conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations)


@op
def conv2d_transpose(input, filters, output_shape, strides, padding="SAME", data_format="NHWC", dilations=None, name=None):
    """The transpose of `conv2d`; filters are [height, width, out, in]."""
    return _conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations)


@op
def conv3d_transpose(input, filters, output_shape, strides, padding="SAME", data_format="NDHWC", dilations=None, name=None):
    """The transpose of `conv3d`."""
    return _conv_transpose(input, filters, output_shape, strides, padding, data_format, dilations)


def _pool(kind, input, ksize, strides, padding, data_format):
    x, back = _channels_last(convert_to_tensor(input), data_format)
    n, last = x.ndim - 2, _is_last(data_format)
    size = _per_axis(ksize, n, last)
    strides = size if strides is None else _per_axis(strides, n, last)
    return back(getattr(engine, kind)(x, size, strides, _padding(padding, n, last)))


def _pools(name, kind, doc):
    def pool(input, ksize, strides, padding, data_format=None, name=None):
        return _pool(kind, input, ksize, strides, padding, data_format)

    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = doc
    return op(pool)


max_pool = _pools("max_pool", "max_pool", "The largest cell of each window.")
max_pool1d = _pools("max_pool1d", "max_pool", "The largest cell of each window.")
max_pool2d = _pools("max_pool2d", "max_pool", "The largest cell of each window.")
max_pool3d = _pools("max_pool3d", "max_pool", "The largest cell of each window.")
avg_pool = _pools("avg_pool", "avg_pool", "The mean of each window.")
avg_pool1d = _pools("avg_pool1d", "avg_pool", "The mean of each window.")
avg_pool2d = _pools("avg_pool2d", "avg_pool", "The mean of each window.")
avg_pool3d = _pools("avg_pool3d", "avg_pool", "The mean of each window.")


@op
def pool(input, window_shape, pooling_type, strides=None, padding="VALID", data_format=None, dilations=None, name=None):
    """`max_pool` or `avg_pool` by name."""
    kind = {"MAX": "max_pool", "AVG": "avg_pool"}[pooling_type.upper()]
    return _pool(kind, input, window_shape, 1 if strides is None else strides, padding, data_format)


@op
def space_to_depth(input, block_size, data_format="NHWC", name=None):
    """Blocks of cells moved into channels."""
    x, b = convert_to_tensor(input), int(block_size)
    n, h, w, c = x.shape
    x = engine.transpose(engine.reshape(x, [n, h // b, b, w // b, b, c]), [0, 1, 3, 2, 4, 5])
    return engine.reshape(x, [n, h // b, w // b, b * b * c])


@op
def depth_to_space(input, block_size, data_format="NHWC", name=None):
    """Channels moved into blocks of cells."""
    x, b = convert_to_tensor(input), int(block_size)
    n, h, w, c = x.shape
    x = engine.transpose(engine.reshape(x, [n, h, w, b, b, c // (b * b)]), [0, 1, 3, 2, 4, 5])
    return engine.reshape(x, [n, h * b, w * b, c // (b * b)])


@op
def zero_fraction(value, name=None):
    """The part of elements that are 0."""
    return math.reduce_mean(math.cast(math.equal(value, 0), "float32"))


@op
def local_response_normalization(input, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, name=None):
    """Each cell over the size of its neighbours among the channels."""
    x = convert_to_tensor(input)
    c = x.shape[-1]
    i, j = engine.iota([c, c], 0, "int32"), engine.iota([c, c], 1, "int32")
    near = engine.cast(engine.binary("le", engine.unary("abs", engine.binary("sub", i, j)), int(depth_radius)), raw_dtype(x))
    total = engine.matmul(engine.unary("square", x), near)
    return engine.binary("div", x, engine.binary("pow", engine.binary("add", engine.binary("mul", total, float(alpha)), float(bias)), float(beta)))


lrn = local_response_normalization
