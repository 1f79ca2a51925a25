"""Batches for the trainer, from what Keras' data adapters understand and from arrays without copying them whole."""

import numpy as np
from keras.src import tree
from keras.src.trainers import epoch_iterator
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from plimsoll import _engine as engine

from keras_plimsoll.src.core import result_type


class EpochIterator(epoch_iterator.EpochIterator):
    """Keras' iterator over epochs, with arrays cut batch by batch."""

    def _get_iterator(self):
        if isinstance(self.data_adapter, ArrayDataAdapter):
            return _array_batches(self.data_adapter)
        return self.data_adapter.get_numpy_iterator()


def _array_batches(adapter):
    """Batches of the adapter's arrays, in its order, each leaf of the type that the engine takes it as."""
    sources = tree.map_structure(_Rows, adapter._inputs, none_is_leaf=False)
    size, count, shuffle = adapter._batch_size, adapter._num_samples, adapter._shuffle
    order = np.random.permutation(count) if shuffle and shuffle != "batch" else None
    starts = list(range(0, count, size))
    if shuffle == "batch":
        starts = [starts[i] for i in np.random.permutation(len(starts))] if count % size == 0 else starts
    for start in starts:
        stop = min(start + size, count)
        if order is not None:
            rows = order[start:stop]
        elif shuffle == "batch":
            rows = np.random.permutation(stop - start) + start
        else:
            rows = slice(start, stop)
        yield tree.map_structure(lambda source: source.batch(rows), sources, none_is_leaf=False)


class _Rows:
    """One array of the data, read by rows."""

    def __init__(self, array):
        if isinstance(array, engine.Tensor):
            array = array.numpy()
        elif not isinstance(array, np.ndarray):
            array = array_slicing.convert_to_sliceable(array, target_backend="numpy")
        self._array = array

    def batch(self, rows):
        part = self._array[rows]
        if not isinstance(part, np.ndarray):
            part = self._array.convert_to_numpy(part)
        return part.astype(result_type(str(part.dtype)), copy=False)
