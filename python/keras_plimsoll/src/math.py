"""`keras.ops.math`: segments, order, Fourier transforms, special functions."""

import builtins
import math as pymath

import numpy as np
from keras.src.backend.common import standardize_dtype
from plimsoll import _special

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import numpy as knp
from keras_plimsoll.src import record
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.numpy import like

# Segments


def _segments(data, segment_ids, num_segments):
    data = convert_to_tensor(data)
    ids = cast(segment_ids, "int32")
    if num_segments is None:
        if record.is_symbolic(ids):
            raise ValueError("in a traced function the number of segments must be given as `num_segments`")
        num_segments = int(ids.numpy().max()) + 1 if ids.shape[0] else 0
    return data, ids, int(num_segments)


def segment_sum(data, segment_ids, num_segments=None, sorted=False):
    data, ids, count = _segments(data, segment_ids, num_segments)
    # Ids outside 0..count belong to no segment: they go to one more, which is dropped.
    outside = knp.logical_or(knp.less(ids, 0), knp.greater_equal(ids, count))
    places = knp.where(outside, like(ids, count), ids)
    total = engine.scatter_add(places, data, 0, count + 1)
    return knp.part(total, 0, 0, count)


def _segment_fold(data, segment_ids, num_segments, start, combine):
    """Entry by entry of each segment: the k-th entries of all segments meet in one row."""
    data, ids, count = _segments(data, segment_ids, num_segments)
    hot = knp.equal(knp.expand_dims(ids, 0), engine.iota((count, 1), 0, "int32"))
    hot = engine.reshape(hot, (*hot.shape, *[1] * (data.ndim - 1)))
    spread = knp.where(hot, knp.expand_dims(data, 0), like(data, start))
    return combine(spread, axis=1)


def segment_max(data, segment_ids, num_segments=None, sorted=False):
    return _segment_fold(data, segment_ids, num_segments, _lowest(data), knp.max)


def segment_min(data, segment_ids, num_segments=None, sorted=False):
    return _segment_fold(data, segment_ids, num_segments, _highest(data), knp.min)


def segment_prod(data, segment_ids, num_segments=None, sorted=False):
    dtype = convert_to_tensor(data).dtype
    return cast(_segment_fold(data, segment_ids, num_segments, 1, knp.prod), dtype)


def _lowest(x):
    dtype = convert_to_tensor(x).dtype
    return -pymath.inf if "float" in dtype else int(np.iinfo(dtype).min)


def _highest(x):
    dtype = convert_to_tensor(x).dtype
    return pymath.inf if "float" in dtype else int(np.iinfo(dtype).max)


# Order


def top_k(x, k, sorted=True):
    values, indices = engine.top_k(convert_to_tensor(x), int(k))
    return values, cast(indices, "int32")


def in_top_k(targets, predictions, k):
    predictions = convert_to_tensor(predictions)
    targets = knp.expand_dims(cast(targets, "int32"), -1)
    chosen = engine.take_along(predictions, targets, predictions.ndim - 1)
    better = knp.sum(cast(knp.greater(predictions, chosen), "int32"), axis=-1)
    # What is no number is not among the largest.
    chosen = engine.reshape(chosen, better.shape)
    return knp.logical_and(knp.less(better, int(k)), knp.isfinite(chosen))


def logsumexp(x, axis=None, keepdims=False):
    x = knp.to_float(x)
    top = knp.max(x, axis=axis, keepdims=True)
    top = engine.stop_gradient(knp.where(knp.isfinite(top), top, like(top, 0)))
    total = knp.log(knp.sum(knp.exp(knp.subtract(x, top)), axis=axis, keepdims=True))
    result = knp.add(total, top)
    return result if keepdims else knp.squeeze(result, axis=knp.axes_of(axis, x.ndim))


def cdist(x, y):
    x, y = knp.promoted(convert_to_tensor(x), convert_to_tensor(y), also=(float,))
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError("`cdist` inputs must have rank >= 2")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError("Last dimension of inputs to `cdist` must match")
    apart = knp.subtract(knp.expand_dims(x, -2), knp.expand_dims(y, -3))
    return knp.sqrt(knp.sum(knp.square(apart), axis=-1))


def extract_sequences(x, sequence_length, sequence_stride):
    x = convert_to_tensor(x)
    count = (x.shape[-1] - sequence_length) // sequence_stride + 1
    places = np.arange(builtins.max(count, 0))[:, None] * sequence_stride + np.arange(sequence_length)[None, :]
    return engine.gather(x, convert_to_tensor(places, "int32"), x.ndim - 1)


# Fourier transforms, as products with the matrix of the transform: they have gradients and need no scratch of their own


def _complex_pair(x):
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError(f"Input `x` should be a tuple of two tensors - real and imaginary.Received: x={x}")
    real, imag = (convert_to_tensor(part) for part in x)
    if real.shape != imag.shape:
        raise ValueError(
            "Input `x` should be a tuple of two tensors - real and imaginary."
            "Both the real and imaginary parts should have the same shape. "
            f"Received: x[0].shape = {real.shape}, x[1].shape = {imag.shape}"
        )
    if not knp.is_float(real) or not knp.is_float(imag):
        raise ValueError(f"At least one tensor in input `x` is not of type float.Received: x={x}.")
    return real, imag


def _waves(rows, columns, length):
    """cos and sin of 2 pi i j / length; the product i j is reduced first, so that large angles lose nothing."""
    i, j = engine.iota((rows, columns), 0, "int64"), engine.iota((rows, columns), 1, "int64")
    turn = engine.binary("rem", engine.binary("mul", i, j), knp.scalar(length, "int64"))
    angle = knp.multiply(cast(turn, "float64"), knp.scalar(2 * pymath.pi / length, "float64"))
    return engine.unary("cos", angle), engine.unary("sin", angle)


def _transform(real, imag, axis, inverse=False):
    dtype = real.dtype
    real, imag = (knp.moveaxis(cast(v, "float64"), axis, -1) for v in (real, imag))
    n = real.shape[-1]
    cos, sin = _waves(n, n, n)
    if not inverse:
        sin = knp.negative(sin)
    flat = lambda v: knp.reshape(v, (-1, n))
    a, b = flat(real), flat(imag)
    re = knp.subtract(engine.matmul(a, cos), engine.matmul(b, sin))
    im = knp.add(engine.matmul(a, sin), engine.matmul(b, cos))
    if inverse:
        re, im = knp.divide(re, knp.scalar(n, "float64")), knp.divide(im, knp.scalar(n, "float64"))
    back = lambda v: cast(knp.moveaxis(knp.reshape(v, real.shape), -1, axis), dtype)
    return back(re), back(im)


def fft(x):
    return _transform(*_complex_pair(x), -1)


def fft2(x):
    return _transform(*_transform(*_complex_pair(x), -1), -2)


def ifft2(x):
    return _transform(*_transform(*_complex_pair(x), -1, True), -2, True)


def _fit_last(x, size):
    have = x.shape[-1]
    if have >= size:
        return knp.part(x, x.ndim - 1, 0, size)
    return engine.pad(x, [0] * x.ndim, [0] * (x.ndim - 1) + [size - have])


def rfft(x, fft_length=None):
    x = convert_to_tensor(x)
    n = x.shape[-1] if fft_length is None else int(fft_length)
    dtype = x.dtype
    work = cast(_fit_last(x, n), "float64")
    cos, sin = _waves(n, n // 2 + 1, n)
    flat = knp.reshape(work, (-1, n))
    shape = (*x.shape[:-1], n // 2 + 1)
    real = knp.reshape(engine.matmul(flat, cos), shape)
    imag = knp.reshape(knp.negative(engine.matmul(flat, sin)), shape)
    return cast(real, dtype), cast(imag, dtype)


def irfft(x, fft_length=None):
    real, imag = _complex_pair(x)
    n = 2 * (real.shape[-1] - 1) if fft_length is None else int(fft_length)
    bins = n // 2 + 1
    dtype = real.dtype
    real, imag = (knp.reshape(cast(_fit_last(v, bins), "float64"), (-1, bins)) for v in (real, imag))
    cos, sin = _waves(bins, n, n)
    # Each bin but the first, and the last of an even length, stands for itself and its mirror image.
    twice = np.full((bins, 1), 2.0)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0
    weight = convert_to_tensor(twice / n, "float64")
    y = knp.subtract(engine.matmul(real, knp.multiply(cos, weight)), engine.matmul(imag, knp.multiply(sin, weight)))
    return cast(knp.reshape(y, (*convert_to_tensor(x[0]).shape[:-1], n)), dtype)


def _window_of(window, sequence_length, fft_length, dtype):
    """The window in the middle of a frame of `fft_length`."""
    before = (fft_length - sequence_length) // 2
    behind = fft_length - sequence_length - before
    if window is None:
        return knp.ones((fft_length,), dtype)
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise ValueError(
                f'If a string is passed to `window`, it must be one of `"hann"`, `"hamming"`. Received: window={window}'
            )
        a, b = (0.5, 0.5) if window == "hann" else (0.54, 0.46)
        # The periodic window: one period has `sequence_length` samples.
        angle = np.arange(sequence_length) * (2 * np.pi / builtins.max(sequence_length, 1))
        window = a - b * np.cos(angle) if sequence_length > 1 else np.ones(sequence_length)
    win = convert_to_tensor(window, dtype)
    if win.ndim != 1 or win.shape[-1] != sequence_length:
        raise ValueError(f"The shape of `window` must be equal to [sequence_length].Received: window shape={win.shape}")
    return engine.pad(win, [before], [behind])


def stft(x, sequence_length, sequence_stride, fft_length, window="hann", center=True):
    x = convert_to_tensor(x)
    if standardize_dtype(x.dtype) not in {"float32", "float64"}:
        raise TypeError(f"Invalid input type. Expected `float32` or `float64`. Received: input type={x.dtype}")
    if fft_length < sequence_length:
        raise ValueError(
            "`fft_length` must equal or larger than `sequence_length`. "
            f"Received: sequence_length={sequence_length}, fft_length={fft_length}"
        )
    win = _window_of(window, sequence_length, fft_length, x.dtype)
    if center:
        half = fft_length // 2
        x = knp.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="reflect")
    frames = extract_sequences(x, fft_length, sequence_stride)
    return rfft(knp.multiply(frames, win), fft_length)


def _overlap_weight(window, stride):
    """What frames that begin every `stride` samples add up to under the window's square, at each place of a frame: 1 where that is nothing."""
    n = window.shape[0]
    turns = -(-n // stride)
    squares = engine.pad(knp.square(window), [0], [turns * stride - n])
    period = knp.sum(engine.reshape(squares, (turns, stride)), axis=0)
    weight = knp.part(knp.tile(period, turns), 0, 0, n)
    return knp.where(knp.greater(weight, 1e-10), weight, like(weight, 1.0))


def istft(x, sequence_length, sequence_stride, fft_length, length=None, window="hann", center=True):
    real, imag = _complex_pair(x)
    dtype = real.dtype
    win = _window_of(window, sequence_length, fft_length, dtype)
    frames = irfft((real, imag), fft_length)
    count = frames.shape[-2]
    total = fft_length + sequence_stride * (count - 1)
    places = convert_to_tensor(
        (np.arange(count)[:, None] * sequence_stride + np.arange(fft_length)[None, :]).reshape(-1), "int32"
    )
    lead = frames.shape[:-2]

    def overlapped(pieces):
        rows = knp.reshape(pieces, (-1, count * fft_length))
        summed = engine.scatter_add(places, engine.transpose(rows, [1, 0]), 0, total)
        return engine.transpose(summed, [1, 0])

    if window is not None:
        frames = knp.multiply(frames, knp.divide(win, _overlap_weight(win, sequence_stride)))
    signal = overlapped(frames)
    start = fft_length // 2 if center else 0
    end = start + length if length is not None else (total - fft_length // 2 if center else total)
    signal = knp.reshape(signal, (*lead, total))
    if end > total:
        signal = engine.pad(signal, [0] * signal.ndim, [0] * (signal.ndim - 1) + [end - total])
    return knp.part(signal, signal.ndim - 1, start, end)


# Special functions


def rsqrt(x):
    return engine.unary("rsqrt", knp.to_float(x))


def erf(x):
    return engine.unary("erf", knp.to_float(x))


def erfc(x):
    return knp.subtract(1.0, erf(x))


def erfinv(x):
    x = convert_to_tensor(x)
    return _special.erfinv(cast(x, result_type(x.dtype, float)))


def logdet(x):
    return knp.slogdet(x)[1]
