"""Keras losses: the value, and its gradient with respect to the predictions. Run by `layers.py`."""

import numpy as np
import tensorflow as tf
from keras import losses as K

from describe import loss_settings
from streams import Case, integers, uniform, values


def cases():
    real, positive = uniform(3, 4, scale=2.0), uniform(3, 4, scale=0.9, offset=1.0)
    probability, logits = uniform(3, 4, scale=0.45, offset=0.5), uniform(3, 4, scale=3.0)
    bits, counts = integers(3, 4, below=2, dtype="float32"), integers(3, 4, below=5, dtype="float32")
    signs = values(np.where(np.arange(12).reshape(3, 4) % 5 < 2, 1.0, -1.0), "float32")
    one_hot = values(np.eye(4)[[2, 0, 3]], "float32")
    certain = values([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]], "float32")
    classes, class_grid = integers(3, below=4), integers(2, 3, below=4)
    grid_logits = uniform(2, 3, 4, scale=3.0)
    grid_probability = uniform(2, 3, 4, scale=0.45, offset=0.5)

    def binary(**options):
        return K.BinaryCrossentropy(**options)

    def categorical(**options):
        return K.CategoricalCrossentropy(**options)

    def sparse(**options):
        return K.SparseCategoricalCrossentropy(**options)

    rows = [
        ("mse", K.MeanSquaredError(), real, real),
        ("mse_sum", K.MeanSquaredError(reduction="sum"), real, real),
        ("mse_weighted_mean", K.MeanSquaredError(reduction="mean_with_sample_weight"), real, real),
        ("mae", K.MeanAbsoluteError(), real, real),
        ("mape", K.MeanAbsolutePercentageError(), positive, positive),
        ("msle", K.MeanSquaredLogarithmicError(), positive, positive),
        ("huber", K.Huber(), real, real),
        ("huber_small_delta", K.Huber(delta=0.3), real, real),
        ("log_cosh", K.LogCosh(), real, real),
        ("binary_crossentropy", binary(), bits, probability),
        ("binary_crossentropy_certain", binary(), bits, certain),
        ("binary_crossentropy_logits", binary(from_logits=True), bits, logits),
        ("binary_crossentropy_smooth", binary(label_smoothing=0.1), bits, probability),
        ("binary_crossentropy_logits_smooth", binary(from_logits=True, label_smoothing=0.1),
         bits, logits),
        ("categorical_crossentropy", categorical(), one_hot, probability),
        ("categorical_crossentropy_certain", categorical(), one_hot, certain),
        ("categorical_crossentropy_logits", categorical(from_logits=True), one_hot, logits),
        ("categorical_crossentropy_smooth", categorical(label_smoothing=0.1), one_hot, probability),
        ("categorical_crossentropy_logits_smooth",
         categorical(from_logits=True, label_smoothing=0.1), one_hot, logits),
        ("sparse_categorical_crossentropy", sparse(), classes, probability),
        ("sparse_categorical_crossentropy_logits", sparse(from_logits=True), classes, logits),
        ("sparse_categorical_crossentropy_grid", sparse(from_logits=True), class_grid, grid_logits),
        ("sparse_categorical_crossentropy_ignore", sparse(ignore_class=1), class_grid,
         grid_probability),
        ("sparse_categorical_crossentropy_logits_ignore", sparse(from_logits=True, ignore_class=1),
         class_grid, grid_logits),
        ("kl_divergence", K.KLDivergence(), probability, probability),
        ("hinge", K.Hinge(), signs, real),
        ("hinge_bits", K.Hinge(), bits, real),
        ("squared_hinge", K.SquaredHinge(), signs, real),
        ("categorical_hinge", K.CategoricalHinge(), one_hot, real),
        ("cosine_similarity", K.CosineSimilarity(), real, real),
        ("poisson", K.Poisson(), counts, positive),
    ]
    return [record(*row, weighted=weighted) for row in rows for weighted in (False, True)]


def record(name, loss, y_true, y_pred, weighted):
    case = Case(name + ("_sample_weight" if weighted else ""), **loss_settings(loss))
    true, pred = y_true(case, "y_true"), tf.constant(y_pred(case, "y_pred"))
    weight = None
    if weighted:
        # One weight per loss value: the losses take the last axis away.
        shape = true.shape if "Sparse" in type(loss).__name__ else true.shape[:-1]
        weight = case.uniform("sample_weight", shape, 0.5, 0.75)
    with tf.GradientTape() as tape:
        tape.watch(pred)
        value = loss(true, pred, sample_weight=weight)
    case.expect("value", value.numpy())
    case.expect("grad/y_pred", tape.gradient(value, pred).numpy())
    return case
