"""torch._dynamo.exc: classes of errors that callers of torch.compile and torch.export catch."""

from __future__ import annotations

import enum

__all__ = [
    "BackendCompilerFailed",
    "InternalTorchDynamoError",
    "InvalidBackend",
    "TorchDynamoException",
    "Unsupported",
    "UserError",
    "UserErrorType",
]


class TorchDynamoException(RuntimeError):
    """The base of these errors."""


class InternalTorchDynamoError(TorchDynamoException):
    """Never raised here."""


class Unsupported(TorchDynamoException):
    """A call isn't one graph, and was to be one for a backend of the program's own."""


class UserErrorType(enum.Enum):
    """What a UserError is about."""

    DYNAMIC_CONTROL_FLOW = enum.auto()
    ANTI_PATTERN = enum.auto()
    STANDARD_LIBRARY = enum.auto()
    CONSTRAINT_VIOLATION = enum.auto()
    DYNAMIC_DIM = enum.auto()
    INVALID_INPUT = enum.auto()
    INVALID_OUTPUT = enum.auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = enum.auto()


class UserError(TorchDynamoException):
    """A call of torch.export with arguments that don't fit the program."""

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None):
        super().__init__(msg)
        self.error_type, self.message = error_type, msg


class BackendCompilerFailed(TorchDynamoException):
    """A backend of torch.compile raised an error. inner_exception: that one."""

    def __init__(self, message: str, inner_exception: Exception):
        super().__init__(message)
        self.inner_exception = inner_exception


class InvalidBackend(TorchDynamoException):
    """A name of a backend of torch.compile that nobody registered."""

    def __init__(self, name: str):
        super().__init__(
            f"Invalid backend: {name!r}, see `torch._dynamo.list_backends()` for available "
            "backends."
        )
