"""Batches for the trainer, from what Keras' data adapters understand and from arrays without copying them whole."""

import numpy as np
from keras.src import tree
from keras.src.trainers import epoch_iterator
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from plimsoll import _engine as engine

from keras_plimsoll.src.core import result_type

# The rows gathered for a stretch of steps take so many bytes at most.
_STRETCH_BYTES = 8 << 20


class EpochIterator(epoch_iterator.EpochIterator):
    """Keras' iterator over epochs, with arrays cut batch by batch."""

    def _get_iterator(self):
        if isinstance(self.data_adapter, ArrayDataAdapter):
            return ArrayFeed(self.data_adapter).batches()
        return self.data_adapter.get_numpy_iterator()

    def run_ahead(self, step, batch, done, seconds):
        """Runs steps on what follows this batch of a pipeline of ours, in the engine, for about so many seconds.

        `done` batches of the epoch are done. Gives what the last step returned and how many there were.
        """
        source, ends = self._current_iterator, [n for n in (self.steps_per_epoch, self._num_batches) if n]
        elements = getattr(source, "_inner", None)
        if self.steps_per_execution != 1 or not ends or not isinstance(elements, engine.DatasetIterator):
            return None, 0
        left = min(ends[0] - done, self._num_batches - self._steps_seen if self._num_batches else ends[0])
        logs, count, other = step.elements(batch, elements, left, seconds)
        if other is not None:
            logs, count = step(source.packed(other)), count + 1
        for _ in range(count):
            next(self._epoch_iterator)
        return logs, count

    def array_feed(self):
        """The data as arrays of which a stretch of steps can be cut at once; None if it is none, or not read to its end."""
        if isinstance(self.data_adapter, ArrayDataAdapter) and self.steps_per_epoch is None:
            return ArrayFeed(self.data_adapter)
        return None


class ArrayFeed:
    """Arrays in memory in the order of an epoch. Rows are gathered and converted when they are asked for."""

    def __init__(self, adapter):
        self._sources = tree.map_structure(_Rows, adapter._inputs, none_is_leaf=False)
        self.batch_size, self.count = adapter._batch_size, adapter._num_samples
        self._shuffle = adapter._shuffle

    def order(self):
        """The rows in the order of a new epoch; None for the order they are in."""
        if not self._shuffle:
            return None
        if self._shuffle != "batch":
            return np.random.permutation(self.count)
        starts = range(0, self.count, self.batch_size)
        return np.concatenate([np.random.permutation(min(self.batch_size, self.count - s)) + s for s in starts])

    def rows(self, order, start, stop):
        """These rows of an epoch, each leaf of the type that the engine takes it as."""
        rows = slice(start, stop) if order is None else order[start:stop]
        return tree.map_structure(lambda source: source.rows(rows), self._sources, none_is_leaf=False)

    def whole(self):
        """The arrays themselves, where the engine can take rows out of them as they are; else None."""
        sources = [source for source in tree.flatten(self._sources) if source is not None]
        if any(source.whole() is None for source in sources):
            return None
        return tree.map_structure(lambda source: source.whole(), self._sources, none_is_leaf=False)

    def batches(self):
        """The batches of one epoch."""
        order = self.order()
        for start in range(0, self.count, self.batch_size):
            yield self.rows(order, start, min(start + self.batch_size, self.count))

    def longest_stretch(self, batch):
        """How many batches like this one are gathered at once."""
        size = sum(leaf.nbytes for leaf in tree.flatten(batch) if leaf is not None)
        return max(1, _STRETCH_BYTES // max(size, 1))


class _Rows:
    """One array of the data."""

    def __init__(self, array):
        if isinstance(array, engine.Tensor):
            array = array.numpy()
        elif not isinstance(array, np.ndarray):
            array = array_slicing.convert_to_sliceable(array, target_backend="numpy")
        self._array = array

    def whole(self):
        """The array, if its rows are what `rows` gives."""
        array = self._array
        plain = isinstance(array, np.ndarray) and array.flags.c_contiguous
        return array if plain and str(array.dtype) == result_type(str(array.dtype)) else None

    def rows(self, rows):
        part = self._array[rows]
        if not isinstance(part, np.ndarray):
            part = self._array.convert_to_numpy(part)
        return np.ascontiguousarray(part, dtype=result_type(str(part.dtype)))
