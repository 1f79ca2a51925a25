"""Data sets for Keras: how `fit` reads them, and helpers that make them."""

import numpy as np

from plimsoll.data import Dataset


def adapter_of(dataset):
    """A data set as what Keras' loops read."""
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter

    class DatasetAdapter(DataAdapter):
        """Batches as the pipeline makes them."""

        def get_numpy_iterator(self):
            return iter(dataset)

        get_jax_iterator = get_numpy_iterator

        def get_tf_dataset(self):
            return dataset

        @property
        def num_batches(self):
            count = dataset.cardinality_number()
            return None if count < 0 else count

        @property
        def batch_size(self):
            return _batch_size(dataset)

        has_partial_batch = None
        partial_batch_size = None

    return DatasetAdapter()


def _batch_size(dataset):
    from plimsoll import nest

    shape = nest.flatten(dataset.element_spec)[0].shape
    return shape[0] if len(shape) else None


def install():
    """Lets Keras' loops read data sets."""
    from keras.src.trainers import data_adapters

    if getattr(data_adapters, "_plimsoll", False):
        return
    of_others = data_adapters.get_data_adapter

    def get_data_adapter(x, y=None, sample_weight=None, **options):
        if not isinstance(x, Dataset):
            return of_others(x, y=y, sample_weight=sample_weight, **options)
        if y is not None or sample_weight is not None:
            raise ValueError("with a data set as `x`, targets and weights are part of its elements")
        weights = options.get("class_weight")
        return adapter_of(x if weights is None else _weighted(x, weights))

    data_adapters.get_data_adapter = get_data_adapter
    data_adapters._plimsoll = True


def _weighted(dataset, weights):
    """Each sample with the weight of its class."""
    from plimsoll import _array
    from plimsoll import math

    table = np.ones(max(weights) + 1, np.float32)
    table[list(weights)] = list(weights.values())

    def add(x, y, *own):
        label = math.argmax(y, -1) if y.ndim > 1 and y.shape[-1] > 1 else _array.reshape(y, [-1])
        weight = _array.gather(table, math.cast(label, "int32"))
        return x, y, (math.multiply(weight, own[0]) if own else weight)

    return dataset.map(add)
