"""Keras metrics, accumulated over three batches. Run by `layers.py`.

Batch `k` is slice `k` of the inputs; recorded is the result after each batch.
"""

import numpy as np
from keras import metrics as K

from streams import Case

BATCHES, ROWS, CLASSES = 3, 8, 4


def cases():
    rows = [
        ("binary_accuracy", K.BinaryAccuracy, {"threshold": 0.5}, bits, probability),
        ("binary_accuracy_threshold", K.BinaryAccuracy, {"threshold": 0.7}, bits, probability),
        ("categorical_accuracy", K.CategoricalAccuracy, {}, one_hot, scores),
        ("sparse_categorical_accuracy", K.SparseCategoricalAccuracy, {}, classes, scores),
        ("top_k_categorical_accuracy", K.TopKCategoricalAccuracy, {"k": 2}, one_hot, scores),
        ("sparse_top_k_categorical_accuracy", K.SparseTopKCategoricalAccuracy, {"k": 2}, classes,
         scores),
        ("precision", K.Precision, {"thresholds": 0.5}, bits, probability),
        ("precision_thresholds", K.Precision, {"thresholds": [0.3, 0.7]}, bits, probability),
        ("recall", K.Recall, {"thresholds": 0.5}, bits, probability),
        ("recall_thresholds", K.Recall, {"thresholds": [0.3, 0.7]}, bits, probability),
        ("auc_roc", K.AUC, {"num_thresholds": 200, "curve": "ROC",
                            "summation_method": "interpolation"}, bits, probability),
        ("auc_pr", K.AUC, {"num_thresholds": 200, "curve": "PR",
                           "summation_method": "interpolation"}, bits, probability),
        ("auc_roc_few_thresholds", K.AUC, {"num_thresholds": 5, "curve": "ROC",
                                           "summation_method": "interpolation"}, bits, probability),
        ("auc_pr_few_thresholds", K.AUC, {"num_thresholds": 5, "curve": "PR",
                                          "summation_method": "interpolation"}, bits, probability),
        ("mean_squared_error", K.MeanSquaredError, {}, real, real),
        ("mean_absolute_error", K.MeanAbsoluteError, {}, real, real),
        ("root_mean_squared_error", K.RootMeanSquaredError, {}, real, real),
    ]
    return [record(*row, weighted=weighted) for row in rows for weighted in (False, True)]


def record(name, kind, options, y_true, y_pred, weighted):
    case = Case(name + ("_sample_weight" if weighted else ""), metric=kind.__name__, **options)
    true, pred = y_true(case, "y_true"), y_pred(case, "y_pred")
    weight = case.uniform("sample_weight", [BATCHES, ROWS], 0.5, 0.75) if weighted else None
    metric, results = kind(**options), []
    for k in range(BATCHES):
        metric.update_state(true[k], pred[k], sample_weight=weight[k] if weighted else None)
        results.append(np.asarray(metric.result()))
    case.expect("result_after_batch", np.stack(results).astype(np.float32))
    return case


def bits(case, name):
    return case.integers(name, [BATCHES, ROWS, 1], 2, "float32")


def probability(case, name):
    return case.uniform(name, [BATCHES, ROWS, 1], 0.5, 0.5)


def classes(case, name):
    return case.integers(name, [BATCHES, ROWS], CLASSES)


def one_hot(case, name):
    index = np.arange(BATCHES * ROWS).reshape(BATCHES, ROWS) * 5 // 3 % CLASSES
    return case.given(name, np.eye(CLASSES, dtype=int)[index], "float32")


def scores(case, name):
    return case.uniform(name, [BATCHES, ROWS, CLASSES])


def real(case, name):
    return case.uniform(name, [BATCHES, ROWS, 1])
