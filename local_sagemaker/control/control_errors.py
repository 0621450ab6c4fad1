"""The errors of the control plane, with the codes that boto3 raises."""

from __future__ import annotations


class ControlError(Exception):
    """An error reply of the JSON protocol. boto3 turns its ``__type`` into an exception."""

    code: str
    status: int = 400

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ValidationException(ControlError):
    code = "ValidationException"


class SerializationException(ControlError):
    """The body is not JSON with the types of the operation."""

    code = "SerializationException"


class UnknownOperationException(ControlError):
    code = "UnknownOperationException"


class ResourceNotFound(ControlError):
    code = "ResourceNotFound"


class ResourceInUse(ControlError):
    code = "ResourceInUse"


class ResourceLimitExceeded(ControlError):
    code = "ResourceLimitExceeded"


class ObjectNotFoundException(ControlError):
    """Application Auto Scaling's error for a target or policy that is not registered."""

    code = "ObjectNotFoundException"


class LimitExceededException(ControlError):
    """Application Auto Scaling's error for an exceeded quota."""

    code = "LimitExceededException"


class ResourceNotFoundException(ControlError):
    """Application Auto Scaling's error for an ARN that is not one of its targets."""

    code = "ResourceNotFoundException"


class TooManyTagsException(ControlError):
    code = "TooManyTagsException"


class InvalidNextTokenException(ControlError):
    code = "InvalidNextTokenException"


class InternalFailure(ControlError):
    status = 500
    code = "InternalFailure"


def not_found(what: str, arn: str) -> ValidationException:
    """SageMaker answers a missing model, configuration or endpoint with a ValidationException, not ResourceNotFound."""
    return ValidationException(f'Could not find {what} "{arn}".')


def exists(what: str, arn: str) -> ValidationException:
    return ValidationException(f'Cannot create already existing {what} "{arn}".')
