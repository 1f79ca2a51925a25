"""`tf.version`: whose names these are."""

VERSION = "2.21.0"
GIT_VERSION = "plimsoll"
COMPILER_VERSION = "rustc"
