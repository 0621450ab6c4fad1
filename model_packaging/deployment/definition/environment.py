"""Builds the container's environment from options, and a copy without secrets for display."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handler.config.secret_values import MASK, is_secret, location_shown
from handler.errors import SettingError
from model_packaging.deployment.definition.request import LONGEST_VALUE

CONFIG = "ENDPOINT_CONFIG"


def environment(variables: Mapping[str, str], document: str | None, instance: str | None) -> dict[str, str]:
    """Returns the container's environment.

    :param variables: those of the user.
    :param document: a settings document: s3://, inline JSON, or a file that is small enough for a variable.
    :param instance: the instance type, for the container, whatever the variables say. None: the container detects it.
    :raises SettingError: the file is unreadable or too large, or two documents are named.
    """
    result = dict(variables)
    named = result.get(CONFIG, "").strip()
    require_one_document(document, named)
    if not document and instance and os.path.isfile(named):  # noqa: PTH113
        document = named  # a file of this machine is not in the container
    if document:
        result[CONFIG] = document if document.startswith(("s3://", "{")) else _inline(document)
    if instance:
        result["ENDPOINT_INSTANCE"] = instance
    return result


def require_one_document(document: str | None, named: str) -> None:
    """:raises SettingError: --config and ENDPOINT_CONFIG name two documents. The container reads one."""
    if document and named and named != document:
        raise SettingError("--config", f"{CONFIG} names another document", "Leave one of them out.")


def _inline(path: str) -> str:
    from handler.config.loading.document_text import parse
    from handler.config.problems import BadValue

    try:
        settings = parse(Path(path).read_bytes(), path)
    except OSError as error:
        problem = f"{location_shown(path)} cannot be read ({error.strerror})"
        raise SettingError("--config", problem, "Give a readable file.") from None
    except BadValue as bad:
        raise bad.named("--config") from None
    text = json.dumps(settings, separators=(",", ":"))
    if len(text.encode()) > LONGEST_VALUE:
        problem = f"{path} has {len(text.encode())} bytes as JSON, and SageMaker takes {LONGEST_VALUE} in a variable"
        raise SettingError("--config", problem, "Put it into the package (`push --config`), or give s3://...")
    return text


def shown(value: Any) -> Any:
    """Returns the parameters of a call without the values of secret variables."""
    if isinstance(value, dict):
        return {
            key: MASK if isinstance(item, str) and is_secret(str(key), item) else shown(item)
            for key, item in value.items()
        }
    return [shown(item) for item in value] if isinstance(value, (list, tuple)) else value
