"""`tf.compat.v1.logging`: Python's logging."""

import logging as _logging

DEBUG, INFO, WARN, ERROR, FATAL = _logging.DEBUG, _logging.INFO, _logging.WARNING, _logging.ERROR, _logging.FATAL
_logger = _logging.getLogger("plimsoll")
debug, info, warning, warn, error = _logger.debug, _logger.info, _logger.warning, _logger.warning, _logger.error


def set_verbosity(v):
    """Which messages are shown."""
    _logger.setLevel(v)


def get_verbosity():
    """Which messages are shown."""
    return _logger.getEffectiveLevel()
