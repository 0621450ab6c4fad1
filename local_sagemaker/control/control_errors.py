"""What the control plane can refuse with, each as boto3 raises it."""

from __future__ import annotations


class ControlError(Exception):
    """A reply of the JSON protocol: ``__type`` names the code that boto3 makes an exception of."""

    code: str
    status: int = 400

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ValidationException(ControlError):
    code = "ValidationException"


class SerializationException(ControlError):
    """The body is no JSON of the operation's types."""

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
    """Application Auto Scaling's word for a target or policy that is not registered."""

    code = "ObjectNotFoundException"


class LimitExceededException(ControlError):
    """Application Auto Scaling's word for a quota."""

    code = "LimitExceededException"


class ResourceNotFoundException(ControlError):
    """Application Auto Scaling's word for an ARN that names none of its targets."""

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
