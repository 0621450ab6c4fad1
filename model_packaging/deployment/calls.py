"""SageMaker's ways of saying "there is none" and "there is one already", as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Members = dict[str, Any]
# SageMaker has no error code for either: both are a ValidationException, told apart by its words.
MISSING = ("could not find", "does not exist", "not found", "no scalable target", "cannot find", "no scaling policy")
PRESENT = ("already exist", "cannot create already existing", "already being used")
MISSING_CODES = ("ResourceNotFound", "ResourceNotFoundException", "ObjectNotFoundException", "NoSuchEntity")


def found(call: Callable[..., Members], **members: Any) -> Members | None:
    """The answer, or None when there is no such thing."""
    from botocore.exceptions import ClientError

    try:
        return call(**members)
    except ClientError as error:
        if is_missing(error):
            return None
        raise


def create(call: Callable[..., Any], members: Members) -> None:
    """Creates it, unless it is there: an answer that was lost and repeated looks like that."""
    from botocore.exceptions import ClientError

    try:
        call(**members)
    except ClientError as error:
        if not any(words in _message(error) for words in PRESENT):
            raise


def delete(call: Callable[..., Any], **members: Any) -> None:
    """Deletes it, unless it is gone."""
    from botocore.exceptions import ClientError

    try:
        call(**members)
    except ClientError as error:
        if not is_missing(error):
            raise


def is_missing(error: Any) -> bool:
    code = str(error.response.get("Error", {}).get("Code", ""))
    return code in MISSING_CODES or any(words in _message(error) for words in MISSING)


def _message(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Message", "")).lower()
