"""Functions of tf.math, tf.linalg and tf.nn on fixed numbers."""

import numpy as np


def main(tf):
    rng = np.random.default_rng(8)
    x = tf.constant(rng.normal(size=(3, 4)).astype("float32"))
    y = tf.constant(rng.normal(size=(3, 4)).astype("float32"))
    p = tf.abs(x) + 0.1
    square = tf.constant(rng.normal(size=(4, 4)).astype("float32"))
    flat = lambda t: np.asarray(t.numpy()).astype("float64").ravel().tolist()
    ids = tf.constant([0, 0, 1])
    results = {
        "logsumexp": tf.reduce_logsumexp(x, 1),
        "std": tf.math.reduce_std(x, 0),
        "cumsum": tf.cumsum(x, 1, exclusive=True, reverse=True),
        "cumprod": tf.math.cumprod(p, 1),
        "divide_no_nan": tf.math.divide_no_nan(x, tf.nn.relu(y)),
        "xlogy": tf.math.xlogy(tf.nn.relu(x), p),
        "segment_sum": tf.math.segment_sum(x, ids),
        "segment_max": tf.math.segment_max(x, ids),
        "top_k": tf.math.top_k(x, 2).values,
        "top_k_indices": tf.math.top_k(x, 2).indices,
        "l2": tf.math.l2_normalize(x, 1),
        "in_top_k": tf.cast(tf.math.in_top_k([0, 1, 2], x, 2), tf.int32),
        "confusion": tf.math.confusion_matrix([0, 1, 2, 1], [0, 2, 2, 1]),
        "band": tf.linalg.band_part(square, 1, 0),
        "diag": tf.linalg.diag(x[0]),
        "diag_part": tf.linalg.diag_part(square),
        "trace": tf.linalg.trace(square),
        "det": tf.linalg.det(square),
        "inv": tf.linalg.inv(square),
        "norm": tf.norm(x, axis=1),
        "tensordot": tf.tensordot(x, y, axes=[[0], [0]]),
        "einsum": tf.einsum("ij,kj->ik", x, y),
        "matvec": tf.linalg.matvec(square, x[0]),
        "clip": tf.clip_by_norm(x, 1.0),
        "gelu": tf.nn.gelu(x),
        "gelu_tanh": tf.nn.gelu(x, approximate=True),
        "elu": tf.nn.elu(x),
        "selu": tf.nn.selu(x),
        "leaky": tf.nn.leaky_relu(x),
        "silu": tf.nn.silu(x),
        "softsign": tf.nn.softsign(x),
        "bce": tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.sigmoid(y), logits=x),
        "ce": tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(y), logits=x),
        "weighted": tf.nn.weighted_cross_entropy_with_logits(labels=tf.sigmoid(y), logits=x, pos_weight=2.0),
        "erf": tf.math.erf(x),
        "round": tf.round(x * 3),
        "floormod": tf.math.floormod(x, p),
        "atan2": tf.atan2(x, y),
        "where": tf.where(x > 0),
        "gather_nd": tf.gather_nd(x, [[0, 1], [2, 3]]),
        "batch_gather": tf.gather(x, [[0, 1], [2, 2], [3, 0]], batch_dims=1),
        "scatter": tf.scatter_nd([[0], [2], [0]], tf.constant([1.0, 2.0, 3.0]), [4]),
        "roll": tf.roll(x, [1, -1], [0, 1]),
        "reflect": tf.pad(x, [[1, 1], [2, 0]], "REFLECT"),
        "one_hot": tf.one_hot([1, -1, 2], 3, axis=0),
        "argsort": tf.argsort(x, direction="DESCENDING"),
        "searchsorted": tf.searchsorted([1.0, 3.0, 5.0], [0.5, 3.0, 6.0]),
        "unique": tf.unique([5, 1, 5, 2, 1]).idx,
        "linspace": tf.linspace(0.0, 1.0, 7),
        "sequence_mask": tf.cast(tf.sequence_mask([1, 3, 2], 4), tf.int32),
        "meshgrid": tf.meshgrid([1, 2], [3, 4, 5])[0],
        "depth_to_space": tf.nn.depth_to_space(tf.reshape(tf.range(16.0), (1, 2, 2, 4)), 2),
        "max_pool": tf.nn.max_pool2d(tf.reshape(tf.range(16.0), (1, 4, 4, 1)), 2, 2, "VALID"),
        "avg_pool": tf.nn.avg_pool2d(tf.reshape(tf.range(25.0), (1, 5, 5, 1)), 3, 2, "SAME"),
        "depthwise": tf.nn.depthwise_conv2d(tf.reshape(x, (1, 3, 2, 2)), tf.reshape(y[:2], (2, 1, 2, 2)), [1, 1, 1, 1], "SAME"),
        "transposed": tf.nn.conv2d_transpose(tf.reshape(x, (1, 3, 2, 2)), tf.reshape(y, (2, 1, 3, 2)), [1, 6, 2, 3], [2, 1], "SAME"),
        "resize": tf.image.resize(tf.reshape(tf.range(20.0), (4, 5, 1)), (7, 3)),
        "resize_nearest": tf.image.resize(tf.reshape(tf.range(20.0), (4, 5, 1)), (7, 3), method="nearest"),
        "standardize": tf.image.per_image_standardization(tf.reshape(x, (3, 2, 2))),
        "gray": tf.image.rgb_to_grayscale(tf.reshape(p, (2, 2, 3))),
        "hsv": tf.image.rgb_to_hsv(tf.sigmoid(tf.reshape(x, (2, 2, 3)))),
        "contrast": tf.image.adjust_contrast(tf.reshape(p, (2, 2, 3)), 1.7),
        "central": tf.image.central_crop(tf.reshape(tf.range(36.0), (6, 6, 1)), 0.5),
        "crop_or_pad": tf.image.resize_with_crop_or_pad(tf.reshape(tf.range(12.0), (3, 4, 1)), 5, 2),
        "to_float": tf.image.convert_image_dtype(tf.constant([[[0], [255]]], tf.uint8), tf.float32),
    }
    return {name: flat(value) for name, value in results.items()}
