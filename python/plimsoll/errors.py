"""`tf.errors`: the exceptions of TensorFlow under their names.

Each is also the Python exception that says the same, so that `except ValueError` and `except MemoryError` work too.
"""

from plimsoll import _engine

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = range(8)
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS = range(8, 16)


class OpError(Exception):
    """An operation failed."""

    _code = UNKNOWN

    def __init__(self, node_def=None, op=None, message=None, error_code=None):
        if message is None and isinstance(node_def, str):
            node_def, message = None, node_def
        super().__init__(message or "")
        self.node_def, self.op, self.message = node_def, op, message or ""
        self.error_code = self._code if error_code is None else error_code

    def __str__(self):
        return self.message


class InvalidArgumentError(OpError, ValueError):
    """An operand does not suit an operation."""

    _code = INVALID_ARGUMENT


class OutOfRangeError(OpError, IndexError):
    """An iterator has no more elements."""

    _code = OUT_OF_RANGE


class NotFoundError(OpError, FileNotFoundError):
    """A file or name does not exist."""

    _code = NOT_FOUND


class AlreadyExistsError(OpError, FileExistsError):
    """A file or name exists already."""

    _code = ALREADY_EXISTS


class PermissionDeniedError(OpError, PermissionError):
    """The system does not permit it."""

    _code = PERMISSION_DENIED


class FailedPreconditionError(OpError, RuntimeError):
    """Something has to happen first."""

    _code = FAILED_PRECONDITION


class UnimplementedError(OpError, NotImplementedError):
    """There is no such thing here."""

    _code = UNIMPLEMENTED


class InternalError(OpError, RuntimeError):
    """A mistake of the engine."""

    _code = INTERNAL


class DataLossError(OpError, ValueError):
    """Data is damaged."""

    _code = DATA_LOSS


ResourceExhaustedError = _engine.ResourceExhaustedError


class UnavailableError(OpError, RuntimeError):
    """A service does not answer."""

    _code = UNAVAILABLE


class CancelledError(OpError, RuntimeError):
    """It was cancelled."""

    _code = CANCELLED


class AbortedError(OpError, RuntimeError):
    """It was given up."""

    _code = ABORTED


class DeadlineExceededError(OpError, TimeoutError):
    """It took too long."""

    _code = DEADLINE_EXCEEDED


class UnknownError(OpError, RuntimeError):
    """Something else."""


class OperatorNotAllowedInGraphError(TypeError):
    """Python asks for a value that is only known when the traced function runs."""


WouldNotFitError = _engine.WouldNotFitError
