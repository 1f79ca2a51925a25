"""`tf.image`: images as tensors [.., height, width, channels]."""

import struct
import zlib

import numpy as np

from plimsoll import _engine as engine
from plimsoll import math
from plimsoll import random
from plimsoll._array import gather
from plimsoll._core import StringTensor
from plimsoll._core import convert_to_tensor
from plimsoll._core import op
from plimsoll._core import raw_dtype
from plimsoll._core import static_shape
from plimsoll._core import strings_of
from plimsoll._types import as_dtype
from plimsoll.errors import InvalidArgumentError


class ResizeMethod:
    """How images are resized."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = "bilinear", "nearest", "bicubic", "area"
    LANCZOS3, LANCZOS5, GAUSSIAN, MITCHELLCUBIC = "lanczos3", "lanczos5", "gaussian", "mitchellcubic"


@op
def convert_image_dtype(image, dtype, saturate=False, name=None):
    """An image of another type: integers cover the range of their type, floats that from 0 to 1."""
    image, dtype = convert_to_tensor(image), as_dtype(dtype)
    found = image.dtype
    if found == dtype:
        return image
    if found.is_integer and dtype.is_floating:
        return engine.binary("mul", engine.cast(image, dtype.name), 1.0 / found.max)
    if found.is_floating and dtype.is_integer:
        scaled = engine.binary("mul", image, float(dtype.max) + 0.5)
        if saturate:
            scaled = engine.binary("min", engine.binary("max", scaled, float(dtype.min)), float(dtype.max))
        return engine.cast(engine.unary("floor", scaled) if saturate else scaled, dtype.name)
    if found.is_floating:
        return engine.cast(image, dtype.name)
    scale = (int(found.max) + 1) // (int(dtype.max) + 1)
    return engine.cast(engine.binary("floor_div", image, scale) if scale > 1 else image, dtype.name)


def _weights(size, new, method, antialias):
    """How much each old cell counts for each new one, along one axis."""
    scale = size / new
    places = (np.arange(new) + 0.5) * scale - 0.5
    cells = np.arange(size)
    spread = max(scale, 1.0) if antialias else 1.0
    if method == "nearest":
        weights = (cells == np.minimum(np.floor((np.arange(new) + 0.5) * scale), size - 1)[:, None]).astype(float)
    elif method == "area":
        low, high = np.arange(new)[:, None] * scale, (np.arange(new)[:, None] + 1) * scale
        weights = np.clip(np.minimum(high, cells + 1) - np.maximum(low, cells), 0, None)
    else:
        off = np.abs(places[:, None] - cells) / spread
        if method == "bilinear":
            weights = np.clip(1 - off, 0, None)
        else:
            a = -0.5
            near = ((a + 2) * off - (a + 3)) * off * off + 1
            far = ((a * off - 5 * a) * off + 8 * a) * off - 4 * a
            weights = np.where(off <= 1, near, np.where(off < 2, far, 0))
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


@op
def resize(images, size, method="bilinear", preserve_aspect_ratio=False, antialias=False, name=None):
    """Images of another size. Results are float32, except of nearest neighbours."""
    x = convert_to_tensor(images)
    single = x.ndim == 3
    x = engine.reshape(x, [1, *x.shape]) if single else x
    height, width = static_shape(size)
    if preserve_aspect_ratio:
        factor = min(height / x.shape[1], width / x.shape[2])
        height, width = (max(1, round_half(d * factor)) for d in x.shape[1:3])
    if method not in ("bilinear", "nearest", "bicubic", "area"):
        raise NotImplementedError(f"images are resized by bilinear, nearest, bicubic or area, not {method!r}")
    if method == "nearest":
        for axis, new in ((1, height), (2, width)):
            old = x.shape[axis]
            places = np.minimum(np.floor((np.arange(new) + 0.5) * (old / new)), old - 1).astype(np.int32)
            x = engine.gather(x, engine.tensor(places), axis)
    else:
        x = engine.cast(x, "float32")
        if (height, width) != tuple(x.shape[1:3]):
            if height != x.shape[1]:
                table = engine.tensor(_weights(x.shape[1], height, method, antialias))
                n, h, w, c = x.shape
                x = engine.reshape(engine.matmul(table, engine.reshape(x, [n, h, w * c])), [n, height, w, c])
            if width != x.shape[2]:
                table = engine.tensor(_weights(x.shape[2], width, method, antialias))
                x = engine.matmul(table, x)
    return engine.reshape(x, list(x.shape[1:])) if single else x


def round_half(x):
    """The nearest whole number, halves up."""
    return int(np.floor(x + 0.5))


@op
def flip_left_right(image):
    """The mirror image."""
    return engine.flip(convert_to_tensor(image), [-2])


@op
def flip_up_down(image):
    """Upside down."""
    return engine.flip(convert_to_tensor(image), [-3])


@op
def transpose(image, name=None):
    """Rows as columns."""
    x = convert_to_tensor(image)
    return engine.transpose(x, [*range(x.ndim - 3), x.ndim - 2, x.ndim - 3, x.ndim - 1])


@op
def rot90(image, k=1, name=None):
    """Turned to the left by quarters."""
    x = convert_to_tensor(image)
    for _ in range(int(k) % 4):
        x = flip_up_down(transpose(x))
    return x


def _maybe(image, key, function):
    """The image, or with an even chance what a function makes of it."""
    x = convert_to_tensor(image)
    lead = [x.shape[0], 1, 1, 1] if x.ndim == 4 else [1, 1, 1]
    return engine.select(engine.binary("lt", engine.random(key, "uniform", lead, "float32"), 0.5), function(x), x)


@op
def random_flip_left_right(image, seed=None):
    """Mirrored with an even chance."""
    return _maybe(image, random.next_key(seed), flip_left_right)


@op
def random_flip_up_down(image, seed=None):
    """Upside down with an even chance."""
    return _maybe(image, random.next_key(seed), flip_up_down)


@op
def stateless_random_flip_left_right(image, seed):
    """Mirrored with an even chance: the same for the same seed."""
    return _maybe(image, random._key_of(seed), flip_left_right)


@op
def stateless_random_flip_up_down(image, seed):
    """Upside down with an even chance: the same for the same seed."""
    return _maybe(image, random._key_of(seed), flip_up_down)


def _as_float(image, change):
    """What a function of floats makes of an image of any type."""
    x = convert_to_tensor(image)
    made = change(x if x.dtype.is_floating else convert_image_dtype(x, "float32"))
    return made if x.dtype.is_floating else convert_image_dtype(made, x.dtype, saturate=True)


@op
def adjust_brightness(image, delta):
    """Brighter by `delta`."""
    return _as_float(image, lambda x: math.add(x, delta))


@op
def adjust_contrast(images, contrast_factor):
    """Farther from each channel's mean."""

    def change(x):
        mean = engine.reduce("mean", x, [-3, -2], True)
        return math.add(math.multiply(math.subtract(x, mean), contrast_factor), mean)

    return _as_float(images, change)


@op
def adjust_gamma(image, gamma=1, gain=1):
    """gain * image ** gamma."""
    return _as_float(image, lambda x: math.multiply(math.pow(x, float(gamma)), float(gain)))


@op
def random_brightness(image, max_delta, seed=None):
    """Brighter or darker by chance."""
    return adjust_brightness(image, random.uniform([], -float(max_delta), float(max_delta), seed=seed))


@op
def random_contrast(image, lower, upper, seed=None):
    """With another contrast by chance."""
    return adjust_contrast(image, random.uniform([], float(lower), float(upper), seed=seed))


@op
def stateless_random_brightness(image, max_delta, seed):
    """Brighter or darker: the same for the same seed."""
    return adjust_brightness(image, random.stateless_uniform([], seed, -float(max_delta), float(max_delta)))


@op
def stateless_random_contrast(image, lower, upper, seed):
    """With another contrast: the same for the same seed."""
    return adjust_contrast(image, random.stateless_uniform([], seed, float(lower), float(upper)))


@op
def rgb_to_grayscale(images, name=None):
    """One channel: how bright it looks."""

    def change(x):
        weights = engine.tensor(np.array([0.2989, 0.587, 0.114], np.float32), raw_dtype(x))
        return engine.reduce("sum", engine.binary("mul", x, weights), -1, True)

    return _as_float(images, change)


@op
def grayscale_to_rgb(images, name=None):
    """Three equal channels."""
    x = convert_to_tensor(images)
    return engine.broadcast_to(x, [*x.shape[:-1], 3])


@op
def rgb_to_hsv(images, name=None):
    """Hue, saturation and value."""
    x = convert_to_tensor(images)
    r, g, b = (gather(x, i, axis=-1) for i in range(3))
    high, low = engine.reduce("max", x, -1, False), engine.reduce("min", x, -1, False)
    span = engine.binary("sub", high, low)
    zero = engine.binary("eq", span, 0.0)
    norm = engine.binary("div", engine.full((), 1, raw_dtype(x)), engine.select(zero, engine.full((), 1, raw_dtype(x)), engine.binary("mul", span, 6.0)))
    hue_of = lambda a, c, shift: engine.binary("add", engine.binary("mul", engine.binary("sub", a, c), norm), shift)
    hue = engine.select(engine.binary("eq", r, high), hue_of(g, b, 0.0), engine.select(engine.binary("eq", g, high), hue_of(b, r, 1 / 3), hue_of(r, g, 2 / 3)))
    hue = engine.select(zero, engine.full((), 0, raw_dtype(x)), hue)
    hue = engine.select(engine.binary("lt", hue, 0.0), engine.binary("add", hue, 1.0), hue)
    part = engine.select(engine.binary("gt", high, 0.0), engine.binary("div", span, engine.binary("max", high, 1e-30)), engine.full((), 0, raw_dtype(x)))
    return engine.concat([engine.reshape(v, [*v.shape, 1]) for v in (hue, part, high)], -1)


@op
def crop_to_bounding_box(image, offset_height, offset_width, target_height, target_width, name=None):
    """A part of an image."""
    top, left, height, width = (int(v) for v in (offset_height, offset_width, target_height, target_width))
    return convert_to_tensor(image)[..., top : top + height, left : left + width, :]


@op
def pad_to_bounding_box(image, offset_height, offset_width, target_height, target_width, name=None):
    """An image inside of a larger black one."""
    x = convert_to_tensor(image)
    top, left = int(offset_height), int(offset_width)
    bottom, right = int(target_height) - top - x.shape[-3], int(target_width) - left - x.shape[-2]
    if min(top, left, bottom, right) < 0:
        raise ValueError("the image does not fit into the target at this offset")
    lead = [0] * (x.ndim - 3)
    return engine.pad(x, [*lead, top, left, 0], [*lead, bottom, right, 0])


@op
def resize_with_crop_or_pad(image, target_height, target_width):
    """An image of this size, cut or padded about its middle."""
    x = convert_to_tensor(image)
    height, width = int(target_height), int(target_width)
    top, left = max((x.shape[-3] - height) // 2, 0), max((x.shape[-2] - width) // 2, 0)
    x = x[..., top : top + min(height, x.shape[-3]), left : left + min(width, x.shape[-2]), :]
    return pad_to_bounding_box(x, (height - x.shape[-3]) // 2, (width - x.shape[-2]) // 2, height, width)


resize_image_with_crop_or_pad = resize_with_crop_or_pad


@op
def resize_with_pad(image, target_height, target_width, method="bilinear", antialias=False):
    """An image of this size, with its own proportions, padded."""
    x = convert_to_tensor(image)
    factor = min(target_height / x.shape[-3], target_width / x.shape[-2])
    x = resize(x, [round_half(x.shape[-3] * factor), round_half(x.shape[-2] * factor)], method, antialias=antialias)
    return pad_to_bounding_box(x, (target_height - x.shape[-3]) // 2, (target_width - x.shape[-2]) // 2, target_height, target_width)


@op
def central_crop(image, central_fraction):
    """The middle part of an image."""
    x = convert_to_tensor(image)
    top, left = (int((d - d * central_fraction) / 2) for d in (x.shape[-3], x.shape[-2]))
    return x[..., top : x.shape[-3] - top, left : x.shape[-2] - left, :]


def _cropped(x, size, key):
    sizes = static_shape(size)
    room = np.array([d - s for d, s in zip(x.shape, sizes)])
    if (room < 0).any():
        raise InvalidArgumentError(None, None, f"Need value.shape >= size, got {x.shape} and {sizes}")
    draws = engine.random(key, "uniform", [len(sizes)], "float32").numpy()
    starts = np.minimum((draws * (room + 1)).astype(int), room)
    return engine.slice(x, starts.tolist(), sizes)


@op
def random_crop(value, size, seed=None, name=None):
    """A part of this size at a random place."""
    return _cropped(convert_to_tensor(value), size, random.next_key(seed))


@op
def stateless_random_crop(value, size, seed, name=None):
    """A part of this size: the same for the same seed."""
    return _cropped(convert_to_tensor(value), size, random._key_of(seed))


@op
def per_image_standardization(image):
    """Each image with mean 0 and deviation 1."""
    x = convert_to_tensor(image)
    x = x if x.dtype.is_floating else engine.cast(x, "float32")
    count = float(np.prod(x.shape[-3:]))
    mean = engine.reduce("mean", x, [-3, -2, -1], True)
    off = engine.binary("sub", x, mean)
    deviation = engine.unary("sqrt", engine.reduce("mean", engine.unary("square", off), [-3, -2, -1], True))
    return engine.binary("div", off, engine.binary("max", deviation, float(1.0 / np.sqrt(count))))


@op
def psnr(a, b, max_val, name=None):
    """The ratio of the signal's peak to the noise, in decibels."""
    a, b = convert_image_dtype(a, "float32"), convert_image_dtype(b, "float32")
    error = engine.reduce("mean", engine.unary("square", engine.binary("sub", a, b)), [-3, -2, -1], False)
    return math.subtract(20 * np.log10(float(max_val)), math.multiply(math.log(error), 10 / np.log(10.0)))


def _decoded(contents, channels):
    return engine.decode_image(strings_of(contents)[()], int(channels or 0))


def decode_jpeg(contents, channels=0, *args, **kwargs):
    """An image from the bytes of a JPEG file."""
    return _decoded(contents, channels)


def decode_png(contents, channels=0, dtype="uint8", name=None):
    """An image from the bytes of a PNG file."""
    return _decoded(contents, channels)


def decode_image(contents, channels=None, dtype="uint8", name=None, expand_animations=True):
    """An image from the bytes of a file."""
    return convert_image_dtype(_decoded(contents, channels), dtype)


def encode_png(image, compression=-1, name=None):
    """The bytes of a PNG file with an image [height, width, channels] of `uint8`."""
    pixels = np.asarray(convert_to_tensor(image).numpy())
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or not 1 <= pixels.shape[-1] <= 4:
        raise InvalidArgumentError(None, None, f"encode_png: the image is {pixels.dtype}{list(pixels.shape)}, not uint8[height, width, 1 to 4]")
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    chunk = lambda tag, data: struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    packed = zlib.compress(rows, compression)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    return StringTensor(strings_of(png))
