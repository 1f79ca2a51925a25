"""`tf.dtypes`: the types of elements."""

from plimsoll._types import BY_NAME as _BY_NAME
from plimsoll._types import DType as DType
from plimsoll._types import as_dtype as as_dtype
from plimsoll.math import cast as cast
from plimsoll.math import saturate_cast as saturate_cast

globals().update(_BY_NAME)
double, half = _BY_NAME["float64"], _BY_NAME["float16"]
