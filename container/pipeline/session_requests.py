"""Sessions as SageMaker speaks of them: a request type in the body, ids in the headers.

Names: aws/model-hosting-container-standards (sagemaker/sessions); "Stateful sessions with Amazon SageMaker AI models".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Response

from container.service import Service
from handler.errors import InvalidField, MissingField
from handler.schemas.reply import encode
from handler.sessions.session_errors import HEADER, SessionsDisabled
from handler.sessions.session_store import Sessions

NEW_HEADER = "X-Amzn-SageMaker-New-Session-Id"
CLOSED_HEADER = "X-Amzn-SageMaker-Closed-Session-Id"
NEW, CLOSE = "NEW_SESSION", "CLOSE"
REQUEST_TYPE = "requestType"


def enter(service: Service, identity: str | None) -> dict[str, str]:
    """What a request's session id asks for: nothing, a session that is open, or a new one.

    :return: headers for the reply, with the new session's id.
    :raises EndpointError: sessions are off, full, or this one is not open.
    """
    if not identity:
        return {}
    sessions = sessions_of(service)
    if identity != NEW:
        sessions.check(identity)
        return {}
    return {NEW_HEADER: sessions.begin().header()}


def manage(service: Service, document: Mapping[str, Any], identity: str | None) -> Response | None:
    """The response to a body that only opens or closes a session; None for every other body.

    :raises EndpointError: it cannot be done.
    """
    if set(document) != {REQUEST_TYPE}:
        return None
    asked = document[REQUEST_TYPE]
    sessions = sessions_of(service)
    if asked == NEW:
        session = sessions.begin()
        return _reply({"session_id": session.identity, "status": "open"}, {NEW_HEADER: session.header()})
    if asked != CLOSE:
        raise InvalidField(REQUEST_TYPE, f"it must be {NEW} or {CLOSE}")
    if not identity:
        raise MissingField(HEADER, "say which session to close")
    sessions.close(identity)
    return _reply({"session_id": identity, "status": "closed"}, {CLOSED_HEADER: identity})


def sessions_of(service: Service) -> Sessions:
    """:raises SessionsDisabled: the endpoint keeps none."""
    if service.sessions is None:
        raise SessionsDisabled
    return service.sessions


def _reply(document: dict[str, str], headers: dict[str, str]) -> Response:
    return Response(encode(document), headers=headers, content_type="application/json")
