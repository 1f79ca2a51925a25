"""`tf.compat.v1.data`: iterators for sessions."""

from plimsoll import nest
from plimsoll._graph import GraphTensor
from plimsoll.data import Dataset as Dataset
from plimsoll.errors import OutOfRangeError


class Iterator:
    """Gives the next element whenever a session runs it."""

    def __init__(self, dataset):
        self._dataset = dataset
        self._running = iter(dataset)
        self._next = GraphTensor(lambda run: self._advance())

    def _advance(self):
        try:
            return nest.flatten(next(self._running))
        except StopIteration:
            raise OutOfRangeError(None, None, "End of sequence") from None

    @property
    def initializer(self):
        """Begins anew."""

        def begin(run):
            self._running = iter(self._dataset)

        return GraphTensor(begin)

    def get_next(self, name=None):
        """The next element, in the structure of the elements."""
        specs = nest.flatten(self._dataset.element_spec)
        part = lambda i: GraphTensor(lambda run: run(self._next)[i], specs[i].dtype, specs[i].shape)
        return nest.pack_sequence_as(self._dataset.element_spec, [part(i) for i in range(len(specs))])


def make_one_shot_iterator(dataset, shared_name=None):
    """An iterator over one pass."""
    return Iterator(dataset)


def make_initializable_iterator(dataset, shared_name=None):
    """An iterator that begins when its initializer runs."""
    return Iterator(dataset)
