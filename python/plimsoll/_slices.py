"""Lists of tensors, and rows with their places."""

from plimsoll import _engine as engine
from plimsoll._array import stack
from plimsoll._core import convert_to_tensor
from plimsoll._types import as_dtype


class IndexedSlices:
    """Rows of a larger tensor and where they stand. Gradients here are always whole tensors."""

    def __init__(self, values, indices, dense_shape=None):
        self.values, self.indices, self.dense_shape = convert_to_tensor(values), convert_to_tensor(indices), dense_shape

    dtype = property(lambda self: self.values.dtype)


class TensorArray:
    """A list of tensors, written and read by number; every write gives the array itself."""

    def __init__(self, dtype, size=0, dynamic_size=False, clear_after_read=None, element_shape=None, infer_shape=True, **kwargs):
        self.dtype, self._items, self._grows = as_dtype(dtype), [None] * int(size), bool(dynamic_size)
        self._shape = element_shape

    def write(self, index, value, name=None):
        """Puts a tensor at a place."""
        index = int(index)
        if index >= len(self._items):
            if not self._grows:
                raise IndexError(f"place {index} of an array of {len(self._items)}; make it with dynamic_size=True")
            self._items += [None] * (index + 1 - len(self._items))
        self._items[index] = convert_to_tensor(value, dtype_hint=self.dtype)
        return self

    def read(self, index, name=None):
        """The tensor at a place."""
        return self._items[int(index)]

    def size(self, name=None):
        """How many there are."""
        return engine.tensor(len(self._items), "int32")

    def stack(self, name=None):
        """All of them along a new first axis."""
        if any(item is None for item in self._items):
            shape = next((item.shape for item in self._items if item is not None), self._shape or [])
            self._items = [engine.full(list(shape), 0, self.dtype.name) if item is None else item for item in self._items]
        return stack(self._items)

    def concat(self, name=None):
        """All of them side by side."""
        return engine.concat(self._items, 0)

    def unstack(self, value, name=None):
        """The rows of a tensor as the items."""
        x = convert_to_tensor(value)
        self._items = [x[i] for i in range(x.shape[0])]
        return self

    def gather(self, indices, name=None):
        """Some of them along a new first axis."""
        return stack([self._items[int(i)] for i in indices])

    def mark_used(self):
        """Accepted."""
