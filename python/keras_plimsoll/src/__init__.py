"""What Keras asks of a backend, on Plimsoll's engine. Read `core` first, then `numpy`; the others stand on them."""

from keras.src.backend.common.name_scope import name_scope

from keras_plimsoll.src import core
from keras_plimsoll.src import image
from keras_plimsoll.src import linalg
from keras_plimsoll.src import math
from keras_plimsoll.src import nn
from keras_plimsoll.src import numpy
from keras_plimsoll.src import operators
from keras_plimsoll.src import random
from keras_plimsoll.src.core import IS_THREAD_SAFE
from keras_plimsoll.src.core import SUPPORTS_COMPLEX_DTYPES
from keras_plimsoll.src.core import SUPPORTS_RAGGED_TENSORS
from keras_plimsoll.src.core import SUPPORTS_SPARSE_TENSORS
from keras_plimsoll.src.core import Variable
from keras_plimsoll.src.core import cast
from keras_plimsoll.src.core import compute_output_spec
from keras_plimsoll.src.core import cond
from keras_plimsoll.src.core import convert_to_numpy
from keras_plimsoll.src.core import convert_to_tensor
from keras_plimsoll.src.core import device_scope
from keras_plimsoll.src.core import is_tensor
from keras_plimsoll.src.core import random_seed_dtype
from keras_plimsoll.src.core import scatter
from keras_plimsoll.src.core import shape
from keras_plimsoll.src.core import stop_gradient
from keras_plimsoll.src.core import vectorized_map
from keras_plimsoll.src.rnn import bidirectional_gru
from keras_plimsoll.src.rnn import bidirectional_lstm
from keras_plimsoll.src.rnn import cudnn_ok
from keras_plimsoll.src.rnn import gru
from keras_plimsoll.src.rnn import lstm
from keras_plimsoll.src.rnn import rnn

operators.install()

__all__ = [
    "IS_THREAD_SAFE",
    "SUPPORTS_COMPLEX_DTYPES",
    "SUPPORTS_RAGGED_TENSORS",
    "SUPPORTS_SPARSE_TENSORS",
    "Variable",
    "bidirectional_gru",
    "bidirectional_lstm",
    "cast",
    "compute_output_spec",
    "cond",
    "convert_to_numpy",
    "convert_to_tensor",
    "core",
    "cudnn_ok",
    "device_scope",
    "gru",
    "image",
    "is_tensor",
    "linalg",
    "lstm",
    "math",
    "name_scope",
    "nn",
    "numpy",
    "random",
    "random_seed_dtype",
    "rnn",
    "scatter",
    "shape",
    "stop_gradient",
    "vectorized_map",
]
