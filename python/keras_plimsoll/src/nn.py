"""`keras.ops.nn`: activations, convolutions, pooling, losses, attention.

Images are worked on with channels last; the other layout is transposed on the way in and out.
"""

import builtins
import math as pymath

import numpy as np
from keras.src import backend
from keras.src.backend.common.backend_utils import check_conv_input_channels
from keras.src.backend.common.backend_utils import check_conv_transpose_input_channels
from keras.src.backend.common.backend_utils import compute_conv_transpose_padding_args_for_jax

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import numpy as knp
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import on_host
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy import like

# Activations


def _float(x):
    x = convert_to_tensor(x)
    return x if knp.is_float(x) else knp.to_float(x)


def relu(x):
    x = convert_to_tensor(x)
    return engine.unary("relu", x) if knp.is_float(x) else knp.maximum(x, 0)


def relu6(x):
    return knp.clip(x, 0, 6)


def sigmoid(x):
    return engine.unary("sigmoid", _float(x))


def sparse_sigmoid(x):
    x = _float(x)
    return knp.clip(knp.multiply(knp.add(x, 1.0), 0.5), 0.0, 1.0)


def tanh(x):
    return engine.unary("tanh", _float(x))


def tanh_shrink(x):
    x = _float(x)
    return knp.subtract(x, tanh(x))


def softplus(x):
    return engine.unary("softplus", _float(x))


def softsign(x):
    x = _float(x)
    return knp.divide(x, knp.add(knp.absolute(x), 1.0))


def soft_shrink(x, threshold=0.5):
    x = _float(x)
    return knp.multiply(knp.sign(x), relu(knp.subtract(knp.absolute(x), threshold)))


def sparse_plus(x):
    x = _float(x)
    middle = knp.multiply(knp.square(knp.add(x, 1.0)), 0.25)
    return knp.where(knp.less_equal(x, -1), like(x, 0), knp.where(knp.less(x, 1), middle, x))


def silu(x):
    x = _float(x)
    return knp.multiply(x, sigmoid(x))


def squareplus(x, b=4):
    x = _float(x)
    return knp.multiply(knp.add(x, knp.sqrt(knp.add(knp.square(x), convert_to_tensor(b, x.dtype)))), 0.5)


def log_sigmoid(x):
    return knp.negative(softplus(knp.negative(_float(x))))


def leaky_relu(x, negative_slope=0.2):
    x = _float(x)
    return knp.where(knp.greater(x, 0), x, knp.multiply(x, negative_slope))


def hard_sigmoid(x):
    return knp.clip(knp.add(knp.divide(_float(x), 6.0), 0.5), 0.0, 1.0)


def hard_silu(x):
    x = _float(x)
    return knp.multiply(x, hard_sigmoid(x))


def elu(x, alpha=1.0):
    x = _float(x)
    # The exponential of what is not taken must stay finite, or its gradient would not be.
    below = knp.expm1(knp.minimum(x, 0))
    return knp.where(knp.greater(x, 0), x, knp.multiply(below, alpha))


def selu(x):
    # Klambauer et al. 2017, the constants that keep mean and variance.
    return knp.multiply(elu(x, 1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


def gelu(x, approximate=True):
    x = _float(x)
    if approximate:
        inner = knp.multiply(knp.add(x, knp.multiply(knp.multiply(knp.square(x), x), 0.044715)), pymath.sqrt(2 / pymath.pi))
        share = knp.add(tanh(inner), 1.0)
    else:
        share = knp.add(engine.unary("erf", knp.multiply(x, pymath.sqrt(0.5))), 1.0)
    return knp.multiply(knp.multiply(x, 0.5), share)


def celu(x, alpha=1.0):
    x = _float(x)
    below = knp.multiply(knp.expm1(knp.divide(knp.minimum(x, 0), alpha)), alpha)
    return knp.add(knp.maximum(x, 0), below)


def glu(x, axis=-1):
    x = _float(x)
    if x.shape[axis] % 2 != 0:
        raise ValueError(f"axis size must be divisible by 2. Received: x.shape={x.shape} with axis={axis}")
    left, right = knp.split(x, 2, axis)
    return knp.multiply(left, sigmoid(right))


def hard_tanh(x):
    return knp.clip(_float(x), -1.0, 1.0)


def hard_shrink(x, threshold=0.5):
    x = _float(x)
    return knp.where(knp.greater(knp.absolute(x), threshold), x, like(x, 0))


def threshold(x, threshold, default_value):
    x = _float(x)
    return knp.where(knp.greater(x, threshold), x, convert_to_tensor(default_value, x.dtype))


def softmax(x, axis=-1):
    return _over_axis(engine.softmax, _float(x), axis)


def log_softmax(x, axis=-1):
    return _over_axis(engine.log_softmax, _float(x), axis)


def _over_axis(primitive, x, axis):
    """A function over one axis, over several made into one, or over all."""
    if x.ndim == 0:
        return knp.reshape(primitive(knp.reshape(x, (1,)), 0), ())
    axes = knp.axes_of(axis, x.ndim)
    if len(axes) == 1:
        return primitive(x, axes[0])
    kept = [i for i in range(x.ndim) if i not in axes]
    order = kept + axes
    moved = engine.transpose(x, order)
    flat = knp.reshape(moved, [x.shape[i] for i in kept] + [-1])
    result = engine.reshape(primitive(flat, len(kept)), moved.shape)
    return engine.transpose(result, [order.index(i) for i in range(x.ndim)])


def sparsemax(x, axis=-1):
    x = _float(x)
    axis = knp.axes_of(axis, x.ndim)[0]
    ordered = engine.sort(x, axis, True)[0]
    total = engine.cumsum(ordered, axis, False, False)
    rank = knp.along(knp.add(engine.iota((x.shape[axis],), 0, x.dtype), 1.0), axis, x.ndim)
    inside = knp.greater(knp.add(knp.multiply(ordered, rank), 1.0), total)
    count = knp.sum(cast(inside, x.dtype), axis=axis, keepdims=True)
    # The sum of the entries inside, which are those in front.
    kept = knp.sum(knp.where(inside, ordered, like(x, 0)), axis=axis, keepdims=True)
    return relu(knp.subtract(x, knp.divide(knp.subtract(kept, 1.0), count)))


# Windows over images


def _each(value, count, what):
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(values) == 1:
        values = values * count
    if len(values) != count:
        raise ValueError(f"`{what}` must have {count} entries, one per spatial axis. Received: {value}")
    return [int(v) for v in values]


def _channels_last(x, data_format):
    return x if data_format == "channels_last" else knp.moveaxis(x, 1, -1)


def _as_given(x, data_format):
    return x if data_format == "channels_last" else knp.moveaxis(x, -1, 1)


def _pool(primitive, inputs, pool_size, strides, padding, data_format):
    data_format = backend.standardize_data_format(data_format)
    inputs = convert_to_tensor(inputs)
    if padding not in ("same", "valid"):
        raise ValueError(f"Invalid padding '{padding}', must be 'same' or 'valid'.")
    spatial = inputs.ndim - 2
    window = _each(pool_size, spatial, "pool_size")
    strides = window if strides is None else _each(strides, spatial, "strides")
    x = _channels_last(inputs, data_format)
    work = x if knp.is_float(x) else cast(x, "float32")
    return cast(_as_given(primitive(work, window, strides, padding), data_format), inputs.dtype)


def max_pool(inputs, pool_size, strides=None, padding="valid", data_format=None):
    return _pool(engine.max_pool, inputs, pool_size, strides, padding, data_format)


def average_pool(inputs, pool_size, strides=None, padding="valid", data_format=None):
    return _pool(engine.avg_pool, inputs, pool_size, strides, padding, data_format)


def _adaptive_pool(kind, inputs, output_size, data_format):
    """Windows from floor(i n / m) to ceil((i + 1) n / m), axis by axis: each is a slice, reduced."""
    data_format = backend.standardize_data_format(data_format)
    x = _channels_last(convert_to_tensor(inputs), data_format)
    sizes = _each(output_size, x.ndim - 2, "output_size")
    for axis, count in enumerate(sizes, start=1):
        have = x.shape[axis]
        windows = [(i * have // count, -(-(i + 1) * have // count)) for i in range(count)]
        pieces = [engine.reduce(kind, knp.part(x, axis, a, b), [axis], True) for a, b in windows]
        x = engine.concat(pieces, axis)
    return _as_given(x, data_format)


def adaptive_average_pool(inputs, output_size, data_format=None):
    return _adaptive_pool("mean", inputs, output_size, data_format)


def adaptive_max_pool(inputs, output_size, data_format=None):
    return _adaptive_pool("max", inputs, output_size, data_format)


def conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    data_format = backend.standardize_data_format(data_format)
    inputs, kernel = knp.promoted(convert_to_tensor(inputs), convert_to_tensor(kernel))
    x = _channels_last(inputs, data_format)
    spatial = x.ndim - 2
    if x.shape[-1] % kernel.shape[-2]:
        raise ValueError(
            f"The number of input channels must be evenly divisible by kernel's in_channels. "
            f"Received input channels {x.shape[-1]} and kernel in_channels {kernel.shape[-2]}. "
        )
    groups = x.shape[-1] // kernel.shape[-2]
    return _as_given(_conv(x, kernel, strides, padding, dilation_rate, groups, spatial), data_format)


def _conv(x, kernel, strides, padding, dilations, groups, spatial):
    strides, dilations = _each(strides, spatial, "strides"), _each(dilations, spatial, "dilation_rate")
    dtype = x.dtype
    if not knp.is_float(x):
        x, kernel = cast(x, "float64"), cast(kernel, "float64")
    if isinstance(padding, str):
        padding = padding.lower()
    return cast(engine.conv(x, kernel, strides, padding, dilations, groups), dtype)


def depthwise_conv(inputs, kernel, strides=1, padding="valid", data_format=None, dilation_rate=1):
    data_format = backend.standardize_data_format(data_format)
    inputs, kernel = knp.promoted(convert_to_tensor(inputs), convert_to_tensor(kernel))
    check_conv_input_channels(inputs, kernel, data_format)
    x = _channels_last(inputs, data_format)
    *window, channels, multiplier = kernel.shape
    kernel = engine.reshape(kernel, (*window, 1, channels * multiplier))
    y = _conv(x, kernel, strides, padding, dilation_rate, x.shape[-1], x.ndim - 2)
    return _as_given(y, data_format)


def separable_conv(
    inputs, depthwise_kernel, pointwise_kernel, strides=1, padding="valid", data_format=None, dilation_rate=1
):
    data_format = backend.standardize_data_format(data_format)
    deep = depthwise_conv(inputs, depthwise_kernel, strides, padding, data_format, dilation_rate)
    return conv(deep, pointwise_kernel, strides=1, padding="valid", data_format=data_format, dilation_rate=1)


def conv_transpose(
    inputs, kernel, strides=1, padding="valid", output_padding=None, data_format=None, dilation_rate=1
):
    data_format = backend.standardize_data_format(data_format)
    inputs, kernel = knp.promoted(convert_to_tensor(inputs), convert_to_tensor(kernel))
    check_conv_transpose_input_channels(inputs, kernel, data_format)
    spatial = inputs.ndim - 2
    x = _channels_last(inputs, data_format)
    steps, dilations = _each(strides, spatial, "strides"), _each(dilation_rate, spatial, "dilation_rate")
    around = compute_conv_transpose_padding_args_for_jax(
        input_shape=x.shape,
        kernel_shape=kernel.shape,
        strides=strides,
        padding=padding,
        output_padding=output_padding,
        dilation_rate=dilation_rate,
    )
    cells, image, rest = [], [], []
    for i, (left, right) in enumerate(around):
        reach = (kernel.shape[i] - 1) * dilations[i] + 1
        size = (x.shape[1 + i] - 1) * steps[i] + 1 + left + right - (reach - 1)
        before = reach - 1 - left
        behind = builtins.max(reach - 1 - right, 0)
        # What a convolution with this stride would not reach is zero, and put behind afterwards.
        reached = (x.shape[1 + i] - 1) * steps[i] + reach - before - behind
        extra = builtins.max(size - reached - (steps[i] - 1), 0)
        cells.append((before, behind))
        image.append(size - extra)
        rest.append(extra)
    y = engine.conv_transpose(x, kernel, steps, cells, dilations, 1, image)
    if any(rest):
        y = engine.pad(y, [0] * y.ndim, [0, *rest, 0])
    return _as_given(y, data_format)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    x = convert_to_tensor(input)
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (_each(v, 2, "size") for v in (kernel_size, dilation, padding, stride))
    x = engine.pad(x, [0, 0, ph, pw], [0, 0, ph, pw])
    n, c, h, w = x.shape
    rows, columns = (h - (kh - 1) * dh - 1) // sh + 1, (w - (kw - 1) * dw - 1) // sw + 1
    pieces = [
        engine.slice(x, [0, 0, i * dh, j * dw], [n, c, rows, columns], [1, 1, sh, sw])
        for i in range(kh)
        for j in range(kw)
    ]
    return engine.reshape(knp.stack(pieces, axis=2), (n, c * kh * kw, rows * columns))


def fold(x, output_size, kernel_size, dilation=1, padding=0, stride=1):
    x = convert_to_tensor(x)
    (oh, ow), (kh, kw), (dh, dw) = (_each(v, 2, "size") for v in (output_size, kernel_size, dilation))
    (ph, pw), (sh, sw) = (_each(v, 2, "size") for v in (padding, stride))
    n, c = x.shape[0], x.shape[1] // (kh * kw)
    rows, columns = (oh + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (ow + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    high, wide = oh + 2 * ph, ow + 2 * pw
    pieces = engine.reshape(x, (n, c, kh, kw, rows * columns))
    i, j, r, k = np.ix_(np.arange(kh), np.arange(kw), np.arange(rows), np.arange(columns))
    places = ((i * dh + r * sh) * wide + (j * dw + k * sw)).reshape(-1)
    pieces = engine.reshape(pieces, (n * c, kh * kw * rows * columns))
    pieces = engine.transpose(pieces, [1, 0])
    total = engine.scatter_add(convert_to_tensor(places, "int32"), pieces, 0, high * wide)
    total = engine.reshape(engine.transpose(total, [1, 0]), (n, c, high, wide))
    return engine.slice(total, [0, 0, ph, pw], [n, c, oh, ow], [1, 1, 1, 1])


def depth_to_space(x, block_size, data_format="channels_last"):
    x = _channels_last(convert_to_tensor(x), data_format)
    n, h, w, c = x.shape
    b, rest = block_size, c // block_size**2
    if data_format == "channels_last":
        cells = engine.transpose(engine.reshape(x, (n, h, w, b, b, rest)), [0, 1, 3, 2, 4, 5])
    else:
        cells = engine.transpose(engine.reshape(x, (n, h, w, rest, b, b)), [0, 1, 4, 2, 5, 3])
    return _as_given(engine.reshape(cells, (n, h * b, w * b, rest)), data_format)


def space_to_depth(x, block_size, data_format="channels_last"):
    x = _channels_last(convert_to_tensor(x), data_format)
    n, h, w, c = x.shape
    b = block_size
    cells = engine.reshape(x, (n, h // b, b, w // b, b, c))
    order = [0, 1, 3, 2, 4, 5] if data_format == "channels_last" else [0, 1, 3, 5, 2, 4]
    cells = engine.transpose(cells, order)
    return _as_given(engine.reshape(cells, (n, h // b, w // b, c * b * b)), data_format)


# Classes


def one_hot(x, num_classes, axis=-1, dtype=None, sparse=False):
    if sparse:
        raise ValueError("Unsupported value `sparse=True` with plimsoll backend")
    x = convert_to_tensor(x)
    x = x if x.dtype in ("int32", "int64") else cast(x, "int32")
    dtype = backend.standardize_dtype(dtype or "float32")
    work = dtype if dtype not in ("bool", "uint8") else "int32"
    hot = cast(engine.one_hot(x, int(num_classes), work), dtype)
    axis = knp.axes_of(axis, hot.ndim)[0]
    return hot if axis == hot.ndim - 1 else knp.moveaxis(hot, -1, axis)


def multi_hot(x, num_classes, axis=-1, dtype=None, sparse=False):
    if sparse:
        raise ValueError("Unsupported value `sparse=True` with plimsoll backend")
    x = convert_to_tensor(x)
    reduction_axis = 1 if x.ndim > 1 else 0
    return knp.max(one_hot(cast(x, "int32"), num_classes, axis=axis, dtype=dtype), axis=reduction_axis)


# Losses


def _same_shape(target, output):
    if target.shape != output.shape:
        raise ValueError(
            "Arguments `target` and `output` must have the same shape. Received: "
            f"target.shape={target.shape}, output.shape={output.shape}"
        )


def _probabilities(output, axis):
    output = knp.divide(output, knp.sum(output, axis=axis, keepdims=True))
    return knp.clip(output, backend.epsilon(), 1.0 - backend.epsilon())


def categorical_crossentropy(target, output, from_logits=False, axis=-1):
    target, output = convert_to_tensor(target), convert_to_tensor(output)
    _same_shape(target, output)
    if target.ndim < 1:
        raise ValueError(
            "Arguments `target` and `output` must be at least rank 1. Received: "
            f"target.shape={target.shape}, output.shape={output.shape}"
        )
    log_prob = log_softmax(output, axis=axis) if from_logits else knp.log(_probabilities(output, axis))
    return knp.negative(knp.sum(knp.multiply(target, log_prob), axis=axis))


def sparse_categorical_crossentropy(target, output, from_logits=False, axis=-1):
    target, output = cast(target, "int32"), convert_to_tensor(output)
    if target.ndim == output.ndim and target.shape[-1] == 1:
        target = knp.squeeze(target, axis=-1)
    if output.ndim < 1:
        raise ValueError(f"Argument `output` must be at least rank 1. Received: output.shape={output.shape}")
    if target.shape != output.shape[:-1]:
        raise ValueError(
            "Arguments `target` and `output` must have the same shape up until the last dimension: "
            f"target.shape={target.shape}, output.shape={output.shape}"
        )
    if from_logits and knp.axes_of(axis, output.ndim) == [output.ndim - 1]:
        return engine.sparse_cross_entropy(output, target)
    log_prob = log_softmax(output, axis=axis) if from_logits else knp.log(_probabilities(output, axis))
    hot = one_hot(target, output.shape[axis], axis=axis, dtype=log_prob.dtype)
    return knp.negative(knp.sum(knp.multiply(hot, log_prob), axis=axis))


def binary_crossentropy(target, output, from_logits=False):
    target, output = convert_to_tensor(target), convert_to_tensor(output)
    _same_shape(target, output)
    target, output = knp.promoted(target, output, also=(float,))
    if from_logits:
        # max(x, 0) - x t + log(1 + e^-|x|): no large exponential for either sign.
        small = knp.log1p(knp.exp(knp.negative(knp.absolute(output))))
        return knp.add(knp.subtract(relu(output), knp.multiply(output, target)), small)
    output = knp.clip(output, backend.epsilon(), 1.0 - backend.epsilon())
    hit = knp.multiply(target, knp.log(output))
    miss = knp.multiply(knp.subtract(1.0, target), knp.log(knp.subtract(1.0, output)))
    return knp.negative(knp.add(hit, miss))


def moments(x, axes, keepdims=False, synchronized=False):
    if synchronized:
        raise NotImplementedError("Argument synchronized=True is not supported with the plimsoll backend.")
    x = convert_to_tensor(x)
    axes = knp.axes_of(axes, x.ndim)
    work = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else _float(x)
    if not keepdims and work is x and x.ndim > 1 and 0 not in x.shape and axes == list(range(x.ndim - 1)):
        mean, variance = engine.batch_stats(x)
        # Remembered for `batch_normalization`: with a batch's own statistics it is one operation of the engine.
        mean.batch, variance.batch = x, x
        return mean, variance
    mean = engine.reduce("mean", work, axes, True)
    variance = engine.reduce("mean", knp.square(knp.subtract(work, mean)), axes, True)
    if not keepdims:
        mean, variance = knp.squeeze(mean, axes), knp.squeeze(variance, axes)
    if x.dtype == "float16":
        mean, variance = knp.clip(mean, -65504.0, 65504.0), knp.clip(variance, -65504.0, 65504.0)
    return cast(mean, x.dtype if knp.is_float(x) else mean.dtype), cast(variance, x.dtype if knp.is_float(x) else mean.dtype)


def batch_normalization(x, mean, variance, axis, offset=None, scale=None, epsilon=1e-3):
    x = convert_to_tensor(x)
    own = getattr(mean, "batch", None) is x and getattr(variance, "batch", None) is x
    if own and knp.axes_of(axis, x.ndim) == [x.ndim - 1]:
        scale, offset = (None if v is None else convert_to_tensor(v, x.dtype) for v in (scale, offset))
        return engine.batch_norm_with(x, mean, variance, scale, offset, epsilon)
    spread = lambda v: knp.along(convert_to_tensor(v, x.dtype), knp.axes_of(axis, x.ndim)[0], x.ndim)
    factor = engine.unary("rsqrt", knp.add(spread(variance), epsilon))
    if scale is not None:
        factor = knp.multiply(factor, spread(scale))
    y = knp.multiply(knp.subtract(x, spread(mean)), factor)
    return y if offset is None else knp.add(y, spread(offset))


def layer_normalization(composed):
    """Keras' function, with one operation of the engine over the last axes; over others it is composed as Keras does."""

    def function(x, gamma=None, beta=None, axis=-1, epsilon=None, rms_scaling=False):
        x = convert_to_tensor(x)
        axes = sorted(knp.axes_of(axis, x.ndim))
        last = axes == list(range(x.ndim - len(axes), x.ndim)) and 0 not in x.shape
        width = pymath.prod(x.shape[i] for i in axes)
        fits = all(v is None or pymath.prod(v.shape) == width for v in (gamma, beta))
        if rms_scaling or not axes or not last or not fits:
            return composed(x, gamma=gamma, beta=beta, axis=axis, epsilon=epsilon, rms_scaling=rms_scaling)
        work = result_type(x.dtype, "float32")
        gamma, beta = (v if v is None else knp.reshape(convert_to_tensor(v, work), (width,)) for v in (gamma, beta))
        rows = knp.reshape(cast(x, work), (*x.shape[: x.ndim - len(axes)], width))
        y = engine.layer_norm(rows, gamma, beta, backend.epsilon() if epsilon is None else epsilon)
        return cast(knp.reshape(y, x.shape), x.dtype)

    return function


def rms_normalization(x, scale=None, axis=-1, epsilon=None):
    x = convert_to_tensor(x)
    epsilon = backend.epsilon() if epsilon is None else epsilon
    work = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    size = engine.reduce("mean", knp.square(work), knp.axes_of(axis, x.ndim), True)
    y = cast(knp.multiply(work, engine.unary("rsqrt", knp.add(size, epsilon))), x.dtype)
    return y if scale is None else knp.multiply(y, scale)


def psnr(x1, x2, max_val):
    a, b = convert_to_tensor(x1), convert_to_tensor(x2)
    if a.shape != b.shape:
        raise ValueError(f"Input shapes {a.shape} and {b.shape} must match for PSNR calculation. ")
    a, b = knp.promoted(a, b, also=(float,))
    error = knp.mean(knp.square(knp.subtract(a, b)))
    peak = convert_to_tensor(max_val, b.dtype)
    return knp.subtract(knp.multiply(knp.log10(peak), 20.0), knp.multiply(knp.log10(error), 10.0))


def ctc_loss(target, output, target_length, output_length, mask_index=0):
    """The negative log-likelihood of the labels, by the forward recursion of Graves et al. 2006 in logarithms."""
    target = cast(target, "int32")
    target_length, output_length = cast(target_length, "int32"), cast(output_length, "int32")
    output = convert_to_tensor(output)
    dtype = result_type(output.dtype, "float32")
    logs = log_softmax(cast(output, dtype), axis=-1)
    batch, steps, classes = logs.shape
    labels = target.shape[1]
    never = -1e5
    states = 2 * labels + 1
    # blank, label, blank, label, ..., blank
    blanks = knp.full((batch, labels, 1), mask_index, "int32")
    path = engine.reshape(engine.concat([blanks, knp.expand_dims(target, -1)], 2), (batch, 2 * labels))
    path = engine.concat([path, knp.full((batch, 1), mask_index, "int32")], 1)
    odd = knp.equal(knp.mod(engine.iota((1, states), 1, "int32"), 2), 1)
    two_back = engine.pad(knp.part(path, 1, 0, builtins.max(states - 2, 0)), [0, builtins.min(2, states)], [0, 0])
    skips = knp.logical_and(odd, knp.not_equal(path, two_back))
    first = knp.less(engine.iota((1, states), 1, "int32"), 2)
    hot = one_hot(path, classes, dtype=dtype)
    emitted = engine.matmul(logs, engine.transpose(hot, [0, 2, 1]))

    def moved(alpha, by):
        kept = knp.part(alpha, 1, 0, builtins.max(states - by, 0))
        edge = knp.full((batch, builtins.min(by, states)), never, dtype)
        return engine.concat([edge, kept], 1)

    def at(t):
        return engine.reshape(knp.part(emitted, 1, t, t + 1), (batch, states))

    alpha = knp.where(first, at(0), knp.scalar(never, dtype))
    for t in range(1, steps):
        reached = knp.logaddexp(alpha, moved(alpha, 1))
        jumped = knp.where(skips, moved(alpha, 2), knp.scalar(never, dtype))
        new = knp.add(knp.logaddexp(reached, jumped), at(t))
        live = knp.expand_dims(knp.greater(output_length, t), -1)
        alpha = knp.where(live, new, alpha)
    last = knp.multiply(target_length, 2)
    end = engine.take_along(alpha, knp.expand_dims(last, -1), 1)
    before = engine.take_along(alpha, knp.expand_dims(knp.maximum(knp.subtract(last, 1), 0), -1), 1)
    before = knp.where(knp.expand_dims(knp.equal(target_length, 0), -1), knp.scalar(never, dtype), before)
    return knp.negative(knp.reshape(knp.logaddexp(end, before), (batch,)))


def ctc_decode(
    inputs,
    sequence_lengths,
    strategy="greedy",
    beam_width=100,
    top_paths=1,
    merge_repeated=True,
    mask_index=0,
):
    inputs = convert_to_tensor(inputs)
    dtype = result_type(inputs.dtype, "float32")
    inputs = cast(inputs, dtype)
    batch, steps, _ = inputs.shape
    from keras_plimsoll.src import ctc

    if strategy == "greedy":
        decode = lambda x, n: ctc.greedy(x, n, merge_repeated, mask_index)
        outputs = [((1, batch, steps), "int32"), ((batch, 1), dtype)]
    elif strategy == "beam_search":
        decode = lambda x, n: ctc.beam_search(x, n, beam_width, top_paths, mask_index)
        outputs = [((top_paths, batch, steps), "int32"), ((batch, top_paths), dtype)]
    else:
        raise ValueError(f"Invalid strategy {strategy}. Supported values are 'greedy' and 'beam_search'.")
    paths, scores = on_host(decode, [inputs, cast(sequence_lengths, "int32")], outputs)
    return paths, scores


# Attention

# Far below every score, and still finite: a row in which everything is hidden looks at everything alike.
_HIDDEN = -0.7 * 3.38953e38


def dot_product_attention(
    query,
    key,
    value,
    bias=None,
    mask=None,
    scale=None,
    is_causal=False,
    flash_attention=None,
    attn_logits_soft_cap=None,
):
    # The engine's attention never holds the matrix of scores, whether `flash_attention` asks for that or not.
    query, key, value = (convert_to_tensor(x) for x in (query, key, value))
    if query.ndim != 4:
        raise ValueError(
            "`dot_product_attention` only supports 4D inputs. "
            f"Received: query.shape={query.shape}, key.shape={key.shape}, value.shape={value.shape}."
        )
    query, key, value = knp.promoted(query, key, value)
    dtype = query.dtype
    scale = 1.0 / pymath.sqrt(key.shape[-1]) if scale is None else float(scale)
    if is_causal and query.shape[1] != key.shape[1]:
        # The engine counts places from the ends of both; Keras counts them from the beginning.
        order = knp.tri(query.shape[1], key.shape[1], dtype="bool")
        mask, is_causal = order if mask is None else knp.logical_and(mask, order), False
    if bias is None:
        return engine.attention(query, key, value, scale, bool(is_causal), _added(mask, key.shape[1], dtype))
    # A bias may be trained, and no gradient flows to what the engine's attention adds: the scores are written out.
    work = "float64" if dtype == "float64" else "float32"
    logits = knp.multiply(engine.einsum("btnh,bsnh->bnts", [cast(query, work), cast(key, work)]), scale)
    logits = _masked(knp.add(logits, cast(bias, work)), mask, is_causal)
    weights = engine.softmax(logits, 3)
    return cast(engine.einsum("bnts,bsnh->btnh", [weights, cast(value, work)]), dtype)


def _added(mask, keys, dtype):
    """What is added to the scores so that nothing is left of those which the mask hides."""
    if mask is None:
        return None
    work = "float64" if dtype == "float64" else "float32"
    added = knp.where(mask, knp.scalar(0, work), knp.scalar(_HIDDEN, work))
    added = engine.reshape(added, (*[1] * (4 - added.ndim), *added.shape))
    return engine.broadcast_to(added, (*added.shape[:3], keys))


def _masked(logits, mask, is_causal):
    if mask is not None:
        logits = knp.where(mask, logits, like(logits, _HIDDEN))
    if is_causal:
        logits = knp.where(knp.tri(*logits.shape[2:], dtype="bool"), logits, like(logits, _HIDDEN))
    return logits
