"""`tf.data`: input pipelines under the process's memory limit."""

from plimsoll.data import experimental as experimental
from plimsoll.data._dataset import AUTOTUNE as AUTOTUNE
from plimsoll.data._dataset import INFINITE_CARDINALITY as INFINITE_CARDINALITY
from plimsoll.data._dataset import UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY
from plimsoll.data._dataset import Dataset as Dataset
from plimsoll.data._dataset import DatasetSpec as DatasetSpec
from plimsoll.data._dataset import Iterator as Iterator
from plimsoll.data._dataset import Options as Options
from plimsoll.data._readers import FixedLengthRecordDataset as FixedLengthRecordDataset
from plimsoll.data._readers import TextLineDataset as TextLineDataset
from plimsoll.data._readers import TFRecordDataset as TFRecordDataset

NumpyIterator = Iterator
