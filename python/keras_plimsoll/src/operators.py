"""What Keras and its users expect of a tensor besides the operators of `tf`: a few names of NumPy's arrays.

Operators themselves are those of `tf` (`plimsoll._operators`), whether Keras is loaded or not: operands have one type, and Python numbers take
the tensor's. Keras' own operations promote types before they come here.
"""

from keras_plimsoll.src import core
from keras_plimsoll.src import numpy as knp


def install():
    """Gives `Tensor` these names."""
    core.Tensor.T = property(knp.transpose)
    core.Tensor.astype = core.cast
    core.Tensor.__round__ = lambda self, ndigits=None: knp.round(self, ndigits or 0)
