"""`tf.experimental`: a NumPy-shaped door."""

from plimsoll.experimental import dlpack as dlpack
from plimsoll.experimental import numpy as numpy
