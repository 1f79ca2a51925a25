"""`keras.ops.image`: colours, resizing by weights along each axis, and sampling at coordinates."""

import builtins
import itertools

import numpy as np
from keras.src import backend
from keras.src.random.seed_generator import draw_seed

from keras_plimsoll.src import primitives as engine
from keras_plimsoll.src import linalg
from keras_plimsoll.src import numpy as knp
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import convert_to_numpy
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import result_type
from keras_plimsoll.src.core import unstack
from keras_plimsoll.src.numpy import like

RESIZE_INTERPOLATIONS = ("bilinear", "nearest", "lanczos3", "lanczos5", "bicubic")
AFFINE_TRANSFORM_INTERPOLATIONS = {"nearest": 0, "bilinear": 1}
AFFINE_TRANSFORM_FILL_MODES = {"constant", "nearest", "wrap", "mirror", "reflect"}
MAP_COORDINATES_FILL_MODES = {"constant", "nearest", "wrap", "mirror", "reflect"}
SCALE_AND_TRANSLATE_METHODS = {
    "linear",
    "bilinear",
    "trilinear",
    "cubic",
    "bicubic",
    "tricubic",
    "lanczos3",
    "lanczos5",
}


def _expect_images(images):
    images = convert_to_tensor(images)
    if images.ndim not in (3, 4):
        raise ValueError(
            "Invalid images rank: expected rank 3 (single image) or rank 4 (batch of images). "
            f"Received input with shape: images.shape={images.shape}"
        )
    return images


def _expect(name, value, allowed):
    if value not in allowed:
        raise ValueError(
            f"Invalid value for argument `{name}`. Expected of one {allowed}. Received: {name}={value}"
        )


class _Batch:
    """Images as a batch with channels last, and the way back."""

    def __init__(self, images, data_format):
        self.single = images.ndim == 3
        self.first = data_format == "channels_first"
        images = knp.expand_dims(images, 0) if self.single else images
        self.images = knp.transpose(images, (0, 2, 3, 1)) if self.first else images

    def restore(self, images):
        images = knp.transpose(images, (0, 3, 1, 2)) if self.first else images
        return knp.squeeze(images, 0) if self.single else images


# Colours


def _channels_axis(data_format):
    return -1 if backend.standardize_data_format(data_format) == "channels_last" else -3


def rgb_to_grayscale(images, data_format=None):
    axis = _channels_axis(data_format)
    images = _expect_images(images)
    if images.shape[axis] not in (1, 3):
        raise ValueError(
            "Invalid channel size: expected 3 (RGB) or 1 (Grayscale). "
            f"Received input with shape: images.shape={images.shape}"
        )
    if images.shape[axis] == 1:
        return images
    work = knp.to_float(images)
    weights = convert_to_tensor([0.2989, 0.5870, 0.1140], work.dtype)
    gray = knp.tensordot(work, weights, axes=[[axis], [0]])
    return cast(knp.expand_dims(gray, axis), images.dtype)


def _planes(images, axis):
    if not knp.is_float(images):
        raise ValueError(f"Invalid images dtype: expected float dtype. Received: images.dtype={images.dtype}")
    return [knp.squeeze(plane, axis) for plane in knp.split(images, 3, axis)]


def rgb_to_hsv(images, data_format=None):
    axis = _channels_axis(data_format)
    images = _expect_images(images)
    if knp.is_float(images):
        tiny = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}.get(images.dtype, 2.0**-23)
        images = knp.where(knp.less(knp.absolute(images), tiny), like(images, 0), images)
    r, g, b = _planes(images, axis)
    value = knp.maximum(knp.maximum(r, g), b)
    spread = knp.subtract(value, knp.minimum(knp.minimum(r, g), b))
    gray = knp.less_equal(spread, 0)
    saturation = knp.divide_no_nan(spread, value)
    saturation = knp.where(knp.greater(value, 0), saturation, like(value, 0))
    sixth = knp.divide(1.0, knp.multiply(knp.where(gray, like(spread, 1), spread), 6.0))
    hue = knp.where(
        knp.equal(value, g),
        knp.add(knp.multiply(sixth, knp.subtract(b, r)), 2.0 / 6.0),
        knp.add(knp.multiply(sixth, knp.subtract(r, g)), 4.0 / 6.0),
    )
    hue = knp.where(knp.equal(value, r), knp.multiply(sixth, knp.subtract(g, b)), hue)
    wrapped = knp.add(hue, cast(knp.less(hue, 0), hue.dtype))
    return knp.stack([knp.where(gray, like(hue, 0), wrapped), saturation, value], axis=axis)


def hsv_to_rgb(images, data_format=None):
    axis = _channels_axis(data_format)
    hue, saturation, value = _planes(_expect_images(images), axis)
    turn = knp.multiply(knp.mod(hue, like(hue, 1)), 6.0)
    red = knp.subtract(knp.absolute(knp.subtract(turn, 3.0)), 1.0)
    green = knp.subtract(2.0, knp.absolute(knp.subtract(turn, 2.0)))
    blue = knp.subtract(2.0, knp.absolute(knp.subtract(turn, 4.0)))
    gray = knp.subtract(1.0, saturation)
    mixed = [knp.multiply(value, knp.add(gray, knp.multiply(saturation, knp.clip(c, 0, 1)))) for c in (red, green, blue)]
    return knp.stack(mixed, axis=axis)


# Resizing


def resize(
    images,
    size,
    interpolation="bilinear",
    antialias=False,
    crop_to_aspect_ratio=False,
    pad_to_aspect_ratio=False,
    fill_mode="constant",
    fill_value=0.0,
    data_format=None,
):
    data_format = backend.standardize_data_format(data_format)
    _expect("interpolation", interpolation, RESIZE_INTERPOLATIONS)
    if fill_mode != "constant":
        raise ValueError(
            f"Invalid value for argument `fill_mode`. Only `'constant'` is supported. Received: fill_mode={fill_mode}"
        )
    if pad_to_aspect_ratio and crop_to_aspect_ratio:
        raise ValueError("Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be `True`.")
    if len(size) != 2:
        raise ValueError(f"Argument `size` must be a tuple of two elements (height, width). Received: size={size}")
    images = _expect_images(images)
    rows = images.ndim - 3 if data_format == "channels_last" else images.ndim - 2
    columns = rows + 1
    high, wide = int(size[0]), int(size[1])
    if crop_to_aspect_ratio:
        images = _cropped(images, rows, columns, high, wide)
    elif pad_to_aspect_ratio:
        images = _padded(images, rows, columns, high, wide, fill_value)
    target = list(images.shape)
    target[rows], target[columns] = high, wide
    axes = [axis for axis in (rows, columns) if images.shape[axis] != target[axis]]
    if interpolation == "nearest":
        for axis in axes:
            m, n = images.shape[axis], target[axis]
            places = np.floor((np.arange(n, dtype=np.float32) + 0.5) * m / n).astype("int32")
            images = engine.gather(images, convert_to_tensor(places, "int32"), axis)
        return images
    scale = [target[axis] / images.shape[axis] for axis in axes]
    return _scaled(images, target, axes, scale, [0.0] * len(axes), _KERNELS[interpolation], antialias)


def _cropped(images, rows, columns, high, wide):
    height, width = images.shape[rows], images.shape[columns]
    keep_h = builtins.max(builtins.min(height, int(float(width * high) / wide)), 1)
    keep_w = builtins.max(builtins.min(width, int(float(height * wide) / high)), 1)
    top, left = int((height - keep_h) / 2), int((width - keep_w) / 2)
    images = knp.part(images, rows, top, top + keep_h)
    return knp.part(images, columns, left, left + keep_w)


def _padded(images, rows, columns, high, wide, fill_value):
    height, width = images.shape[rows], images.shape[columns]
    full_h = builtins.max(height, int(float(width * high) / wide))
    full_w = builtins.max(width, int(float(height * wide) / high))
    top, left = int((full_h - height) / 2), int((full_w - width) / 2)
    widths = [(0, 0)] * images.ndim
    if top > 0:
        widths[rows] = (top, top)
    elif left > 0:
        widths[columns] = (left, left)
    return knp.pad(images, widths, constant_values=fill_value)


def _triangle(x):
    return np.maximum(0.0, 1.0 - x)


def _cubic(x):
    """Keys' kernel with a = -0.5."""
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x >= 2.0, 0.0, np.where(x >= 1.0, far, near))


def _lanczos(radius):
    def kernel(x):
        safe = np.where(x > 1e-3, x, 1.0)
        wave = radius * np.sin(np.pi * safe) * np.sin(np.pi * safe / radius) / (np.pi**2 * safe**2)
        return np.where(x > radius, 0.0, np.where(x > 1e-3, wave, 1.0))

    return kernel


_KERNELS = {
    "linear": _triangle,
    "bilinear": _triangle,
    "trilinear": _triangle,
    "cubic": _cubic,
    "bicubic": _cubic,
    "tricubic": _cubic,
    "lanczos3": _lanczos(3.0),
    "lanczos5": _lanczos(5.0),
}


def _weights(size, count, scale, translation, kernel, antialias):
    """How much of each of `size` inputs goes into each of `count` outputs."""
    step = 1.0 / scale
    reach = builtins.max(step, 1.0) if antialias else 1.0
    centre = (np.arange(count) + 0.5) * step - translation * step - 0.5
    weights = kernel(np.abs(centre[None, :] - np.arange(size)[:, None]) / reach)
    total = weights.sum(axis=0, keepdims=True)
    weights = np.where(np.abs(total) > 1000.0 * np.finfo(np.float32).eps, weights / np.where(total != 0, total, 1), 0)
    inside = (centre >= -0.5) & (centre <= size - 0.5)
    return np.where(inside[None, :], weights, 0)


def _scaled(x, shape, axes, scale, translation, kernel, antialias):
    if not axes:
        return x
    work = x if knp.is_float(x) else cast(x, "float32")
    for axis, factor, offset in zip(axes, scale, translation):
        matrix = _weights(x.shape[axis], int(shape[axis]), float(factor), float(offset), kernel, antialias)
        product = knp.tensordot(work, convert_to_tensor(matrix, work.dtype), axes=[[axis], [0]])
        work = knp.moveaxis(product, -1, axis)
    if knp.is_float(x):
        return work
    work = knp.clip(knp.round(work), cast(knp.min(x), "float32"), cast(knp.max(x), "float32"))
    return cast(work, x.dtype)


def scale_and_translate(images, output_shape, scale, translation, spatial_dims, method, antialias=True):
    _expect("method", method, SCALE_AND_TRANSLATE_METHODS)
    images = convert_to_tensor(images)
    scale, translation = convert_to_numpy(scale).reshape(-1), convert_to_numpy(translation).reshape(-1)
    axes = [axis % images.ndim for axis in spatial_dims]
    return _scaled(images, output_shape, axes, scale, translation, _KERNELS[method], antialias)


# Sampling


def map_coordinates(inputs, coordinates, order, fill_mode="constant", fill_value=0.0):
    inputs, coordinates = convert_to_tensor(inputs), convert_to_tensor(coordinates)
    if coordinates.shape[0] != inputs.ndim:
        raise ValueError(
            "First dim of `coordinates` must be the same as the rank of `inputs`. "
            f"Received inputs with shape: {inputs.shape} and coordinate leading dim of {coordinates.shape[0]}"
        )
    if coordinates.ndim < 2:
        raise ValueError(
            f"Invalid coordinates rank: expected at least rank 2. Received input with shape: {coordinates.shape}"
        )
    if fill_mode not in MAP_COORDINATES_FILL_MODES:
        raise ValueError(
            "Invalid value for argument `fill_mode`. Expected one of "
            f"{MAP_COORDINATES_FILL_MODES}. Received: fill_mode={fill_mode}"
        )
    if order not in (0, 1):
        raise ValueError(f"Invalid value for argument `order`. Expected one of {[0, 1]}. Received: order={order}")
    work = cast(coordinates, result_type(coordinates.dtype, "float32"))
    return _sampled(inputs, unstack(work), order, fill_mode, fill_value)


def _sampled(inputs, coordinates, order, fill_mode, fill_value):
    """`inputs` at one coordinate per axis: the nearest place, or the mean of the corners of its cell by nearness."""
    dtype = inputs.dtype
    work = inputs if dtype in ("float32", "float64") else cast(inputs, "float32")
    table = knp.ravel(work)
    corners = [_corners(c, size, order, fill_mode) for c, size in zip(coordinates, inputs.shape)]
    total = None
    for choice in itertools.product(*corners):
        place, share, inside = None, None, None
        for (index, weight, valid), size in zip(choice, inputs.shape):
            place = index if place is None else knp.add(knp.multiply(place, size), index)
            if weight is not None:
                share = weight if share is None else knp.multiply(share, weight)
            if valid is not None:
                inside = valid if inside is None else knp.logical_and(inside, valid)
        value = engine.gather(table, place, 0)
        if inside is not None:
            value = knp.where(inside, value, convert_to_tensor(fill_value, work.dtype))
        if share is not None:
            value = knp.multiply(value, cast(share, work.dtype))
        total = value if total is None else knp.add(total, value)
    if not knp.is_float(inputs):
        total = knp.round(total)
    return cast(total, dtype)


def _corners(c, size, order, fill_mode):
    """For one axis: the places next to a coordinate, each with its weight and whether it is inside (None: always)."""
    if order == 0:
        return [_placed(cast(knp.round(c), "int32"), size, fill_mode, None)]
    low = knp.floor(c)
    share = knp.subtract(c, low)
    low = cast(low, "int32")
    return [
        _placed(low, size, fill_mode, knp.subtract(1.0, share)),
        _placed(knp.add(low, 1), size, fill_mode, share),
    ]


def _placed(index, size, fill_mode, weight):
    valid = None
    if fill_mode == "constant":
        valid = knp.logical_and(knp.greater_equal(index, 0), knp.less(index, size))
        index = knp.clip(index, 0, size - 1)
    elif fill_mode == "nearest":
        index = knp.clip(index, 0, size - 1)
    elif fill_mode == "wrap":
        index = knp.mod(index, like(index, size))
    elif fill_mode == "mirror":
        period = builtins.max(2 * (size - 1), 1)
        folded = knp.mod(index, like(index, period))
        index = knp.minimum(folded, knp.subtract(period, folded)) if size > 1 else knp.zeros_like(index)
    else:
        folded = knp.mod(index, like(index, 2 * size))
        index = knp.minimum(folded, knp.subtract(2 * size - 1, folded))
    return index, weight, valid


def _sample_images(images, rows, columns, order, fill_mode, fill_value):
    """A batch of images `[n, h, w, c]` at places `rows` and `columns`, `[n, ..]` each."""
    n, _, _, channels = images.shape
    shape = (*rows.shape, channels)
    spread = lambda v: engine.broadcast_to(knp.expand_dims(v, -1), shape)
    first = engine.iota(shape, 0, "int32")
    last = engine.iota(shape, len(shape) - 1, "int32")
    table = knp.ravel(images)
    _, h, w, _ = images.shape
    total = None
    for row, column in itertools.product(_corners(rows, h, order, fill_mode), _corners(columns, w, order, fill_mode)):
        place = knp.add(knp.multiply(knp.add(knp.multiply(first, h), spread(row[0])), w), spread(column[0]))
        value = engine.gather(table, knp.add(knp.multiply(place, channels), last), 0)
        if row[2] is not None:
            value = knp.where(spread(knp.logical_and(row[2], column[2])), value, convert_to_tensor(fill_value, value.dtype))
        if row[1] is not None:
            value = knp.multiply(value, cast(spread(knp.multiply(row[1], column[1])), value.dtype))
        total = value if total is None else knp.add(total, value)
    return total


def affine_transform(
    images, transform, interpolation="bilinear", fill_mode="constant", fill_value=0, data_format=None
):
    data_format = backend.standardize_data_format(data_format)
    _expect("interpolation", interpolation, set(AFFINE_TRANSFORM_INTERPOLATIONS))
    _expect("fill_mode", fill_mode, AFFINE_TRANSFORM_FILL_MODES)
    images, transform = _expect_images(images), convert_to_tensor(transform)
    if transform.ndim not in (1, 2):
        raise ValueError(
            "Invalid transform rank: expected rank 1 (single transform) or rank 2 (batch of transforms). "
            f"Received input with shape: transform.shape={transform.shape}"
        )
    dtype = result_type(images.dtype, "float32")
    batch = _Batch(cast(images, dtype), data_format)
    transform = cast(knp.expand_dims(transform, 0) if transform.ndim == 1 else transform, dtype)
    n, h, w, _ = batch.images.shape
    a = [knp.reshape(v, (-1, 1, 1)) for v in unstack(transform, axis=1)]
    y, x = engine.iota((1, h, w), 1, dtype), engine.iota((1, h, w), 2, dtype)
    at = lambda p, q, r: knp.broadcast_to(knp.add(knp.add(knp.multiply(x, p), knp.multiply(y, q)), r), (n, h, w))
    order = AFFINE_TRANSFORM_INTERPOLATIONS[interpolation]
    result = _sample_images(batch.images, at(a[3], a[4], a[5]), at(a[0], a[1], a[2]), order, fill_mode, fill_value)
    result = result if knp.is_float(images) else knp.trunc(result)
    return cast(batch.restore(result), images.dtype)


def perspective_transform(
    images, start_points, end_points, interpolation="bilinear", fill_value=0, data_format=None
):
    data_format = backend.standardize_data_format(data_format)
    start_points, end_points = convert_to_tensor(start_points), convert_to_tensor(end_points)
    _expect("interpolation", interpolation, AFFINE_TRANSFORM_INTERPOLATIONS)
    images = _expect_images(images)
    for name, points in (("start_points", start_points), ("end_points", end_points)):
        if points.ndim not in (2, 3) or tuple(points.shape[-2:]) != (4, 2):
            raise ValueError(
                f"Invalid {name} shape: expected (4,2) for a single image or (N,4,2) for a batch. "
                f"Received shape: {points.shape}"
            )
    if start_points.shape != end_points.shape:
        raise ValueError(
            "start_points and end_points must have the same shape. "
            f"Received start_points.shape={start_points.shape}, end_points.shape={end_points.shape}"
        )
    dtype = result_type(images.dtype, "float32")
    batch = _Batch(cast(images, dtype), data_format)
    n, h, w, _ = batch.images.shape
    single = start_points.ndim == 2
    points = [knp.expand_dims(p, 0) if single else p for p in (start_points, end_points)]
    a = [knp.reshape(v, (-1, 1, 1)) for v in unstack(cast(compute_homography_matrix(*points), dtype), axis=1)]
    y, x = engine.iota((1, h, w), 1, dtype), engine.iota((1, h, w), 2, dtype)
    plane = lambda p, q, r: knp.add(knp.add(knp.multiply(x, p), knp.multiply(y, q)), r)
    below = plane(a[6], a[7], 1.0)
    at = lambda p, q, r: knp.broadcast_to(knp.divide(plane(p, q, r), below), (n, h, w))
    order = AFFINE_TRANSFORM_INTERPOLATIONS[interpolation]
    result = _sample_images(batch.images, at(a[3], a[4], a[5]), at(a[0], a[1], a[2]), order, "constant", fill_value)
    return cast(batch.restore(result), images.dtype)


def compute_homography_matrix(start_points, end_points):
    start, end = knp.promoted(convert_to_tensor(start_points), convert_to_tensor(end_points), also=(float,))
    dtype = start.dtype
    work = result_type(dtype, "float32")
    rows, targets = [], []
    corner = lambda points, i, j: knp.reshape(knp.part(knp.part(cast(points, work), 1, i, i + 1), 2, j, j + 1), (-1,))
    for i in range(4):
        sx, sy, ex, ey = corner(start, i, 0), corner(start, i, 1), corner(end, i, 0), corner(end, i, 1)
        one, zero = knp.ones_like(ex), knp.zeros_like(ex)
        minus = lambda a, b: knp.negative(knp.multiply(a, b))
        rows.append(knp.stack([ex, ey, one, zero, zero, zero, minus(sx, ex), minus(sx, ey)], axis=-1))
        rows.append(knp.stack([zero, zero, zero, ex, ey, one, minus(sy, ex), minus(sy, ey)], axis=-1))
        targets += [sx, sy]
    matrix, target = knp.stack(rows, axis=1), knp.expand_dims(knp.stack(targets, axis=-1), -1)
    return cast(knp.reshape(linalg.solve(matrix, target), (-1, 8)), dtype)


# Filters


def gaussian_blur(images, kernel_size=(3, 3), sigma=(1.0, 1.0), data_format=None):
    data_format = backend.standardize_data_format(data_format)
    images = _expect_images(images)
    dtype = result_type(images.dtype, "float32")
    batch = _Batch(cast(images, dtype), data_format)
    sizes = [int(n) for n in convert_to_numpy(kernel_size).reshape(-1)]
    spreads = unstack(convert_to_tensor(sigma, dtype))

    def bell(size, spread):
        place = knp.subtract(engine.iota((size,), 0, dtype), (size - 1) / 2)
        weight = knp.exp(knp.multiply(knp.square(knp.divide(place, spread)), -0.5))
        return knp.divide(weight, knp.sum(weight))

    kernel = knp.outer(bell(sizes[1], spreads[1]), bell(sizes[0], spreads[0]))
    channels = batch.images.shape[-1]
    kernel = knp.broadcast_to(knp.reshape(kernel, (*kernel.shape, 1, 1)), (*kernel.shape, 1, channels))
    cells = [((n - 1) // 2, n - 1 - (n - 1) // 2) for n in kernel.shape[:2]]
    blurred = engine.conv(batch.images, kernel, [1, 1], cells, [1, 1], channels)
    return cast(batch.restore(blurred), images.dtype)


def elastic_transform(
    images,
    alpha=20.0,
    sigma=5.0,
    interpolation="bilinear",
    fill_mode="reflect",
    fill_value=0.0,
    seed=None,
    data_format=None,
):
    data_format = backend.standardize_data_format(data_format)
    _expect("interpolation", interpolation, set(AFFINE_TRANSFORM_INTERPOLATIONS))
    _expect("fill_mode", fill_mode, AFFINE_TRANSFORM_FILL_MODES)
    images = _expect_images(images)
    dtype = result_type(images.dtype, "float32")
    batch = _Batch(cast(images, dtype), data_format)
    n, h, w, _ = batch.images.shape
    width = int(6 * float(convert_to_numpy(sigma))) | 1
    sigma, alpha = convert_to_tensor(sigma, dtype), convert_to_tensor(alpha, dtype)
    noise = engine.random(cast(draw_seed(seed), "int64"), "normal", (n, h, w, 2), dtype)
    noise = gaussian_blur(
        knp.multiply(noise, sigma), (width, width), knp.stack([sigma, sigma]), data_format="channels_last"
    )
    dx, dy = (knp.multiply(knp.squeeze(part, -1), alpha) for part in knp.split(noise, 2, axis=-1))
    rows = knp.add(engine.iota((n, h, w), 1, dtype), dy)
    columns = knp.add(engine.iota((n, h, w), 2, dtype), dx)
    order = AFFINE_TRANSFORM_INTERPOLATIONS[interpolation]
    result = _sample_images(batch.images, rows, columns, order, fill_mode, fill_value)
    return cast(batch.restore(result), images.dtype)


def sobel_edges(images, data_format=None):
    """The two derivatives of each channel, in a new last axis; borders repeat the mirrored image."""
    data_format = backend.standardize_data_format(data_format)
    images = convert_to_tensor(images)
    x = knp.transpose(images, (0, 2, 3, 1)) if data_format == "channels_first" else images
    work = x if knp.is_float(x) else cast(x, "float32")
    channels = x.shape[-1]
    smooth, slope = np.array([1.0, 2.0, 1.0]), np.array([-1.0, 0.0, 1.0])
    padded = knp.pad(work, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")

    def filtered(kernel):
        kernel = np.broadcast_to(kernel[:, :, None, None], (3, 3, 1, channels))
        return engine.conv(padded, convert_to_tensor(kernel.copy(), work.dtype), [1, 1], "valid", [1, 1], channels)

    edges = cast(knp.stack([filtered(np.outer(slope, smooth)), filtered(np.outer(smooth, slope))], axis=-1), x.dtype)
    return knp.transpose(edges, (0, 3, 1, 2, 4)) if data_format == "channels_first" else edges


