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


def timeseries_dataset_from_array(data, targets, sequence_length, sequence_stride=1, sampling_rate=1, batch_size=128, shuffle=False, seed=None, start_index=None, end_index=None):
    """Windows of an array along its first axis, with targets, as `keras.utils` describes them."""
    from plimsoll import _array
    from plimsoll.random import get_global_seed

    data = np.asarray(data)
    start, end = start_index or 0, end_index if end_index is not None else len(data)
    count = end - start - (sequence_length - 1) * sampling_rate if targets is None else min(len(data), len(targets)) - start
    if targets is None:
        starts = np.arange(0, count, sequence_stride)
    else:
        last = min(end - start - (sequence_length - 1) * sampling_rate, len(targets)) if end_index is None else count
        starts = np.arange(0, max(last, 0), sequence_stride)
    windows = Dataset.from_tensor_slices((starts + start).astype(np.int64))
    if shuffle:
        windows = windows.shuffle(len(starts), seed if seed is not None else get_global_seed())
    steps = (np.arange(sequence_length) * sampling_rate).astype(np.int64)
    if targets is None:
        made = windows.map(lambda i: _array.gather(data, steps + i))
    else:
        targets = np.asarray(targets)
        made = windows.map(lambda i: (_array.gather(data, steps + i), _array.gather(targets, i - start)))
    return made if batch_size is None else made.batch(batch_size).prefetch(-1)
