"""The errors of the control plane, with the codes that boto3 raises."""

from __future__ import annotations


class ControlError(Exception):
    """An error reply of the JSON protocol. boto3 turns its ``__type`` into an exception.

    :ivar code: the ``__type``: the name of the class.
    """

    code: str
    status: int = 400

    def __init_subclass__(cls) -> None:
        cls.code = cls.__name__

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ValidationException(ControlError):
    """A member is invalid. Also for a model, configuration, endpoint or component that exists or does not exist."""


class SerializationException(ControlError):
    """The body is not JSON with the types of the operation."""


class UnknownOperationException(ControlError):
    """No such operation, or one that is not supported here."""


class ResourceNotFound(ControlError):
    """There is no such transform job."""


class ResourceInUse(ControlError):
    """The name of a transform job is taken."""


class ResourceLimitExceeded(ControlError):
    """A service quota is exceeded."""


class ObjectNotFoundException(ControlError):
    """Application Auto Scaling's error for a target or policy that is not registered."""


class LimitExceededException(ControlError):
    """Application Auto Scaling's error for an exceeded quota."""


class ResourceNotFoundException(ControlError):
    """Application Auto Scaling's error for an ARN that is not one of its targets."""


class TooManyTagsException(ControlError):
    """Application Auto Scaling's error for a target with more tags than are allowed."""


class InvalidNextTokenException(ControlError):
    """Application Auto Scaling's error for an invalid NextToken."""


class InternalFailure(ControlError):
    """The service failed."""

    status = 500
