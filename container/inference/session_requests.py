"""SageMaker's stateful sessions: a request type in the body, session ids in the headers.

Names: aws/model-hosting-container-standards (sagemaker/sessions); "Stateful sessions with Amazon SageMaker AI models".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from container.http.exchange import Exchange
from container.http.reply_head import Header
from container.service import Service
from handler.errors import InvalidBody, InvalidField, MissingField
from handler.schemas.json_body import decode
from handler.schemas.reply import encode
from handler.sessions.session_store import HEADER, SessionNotFound, Sessions, SessionsDisabled

NEW_HEADER = "X-Amzn-SageMaker-New-Session-Id"
CLOSED_HEADER = "X-Amzn-SageMaker-Closed-Session-Id"
NEW, CLOSE = "NEW_SESSION", "CLOSE"
REQUEST_TYPE = "requestType"
# Bytes of a body that only opens or closes a session, with some white space.
LONGEST_REQUEST = 256


def session_headers(service: Service, identity: str | None) -> dict[str, str]:
    """Checks a request's session id, or opens a new session if the request asks for one.

    :return: headers for the reply: the new session's id, or nothing.
    :raises EndpointError: sessions are switched off, the limit of sessions is reached, or the session is not open.
    """
    if not identity:
        return {}
    sessions = sessions_of(service)
    if identity != NEW:
        sessions.check(identity)
        return {}
    return {NEW_HEADER: sessions.begin().header()}


def manage_session(service: Service, exchange: Exchange, document: Mapping[str, Any], identity: str | None) -> bool:
    """Opens or closes a session and answers, if the body has a request type. Returns whether it has one.

    :raises EndpointError: the session cannot be opened or closed.
    """
    if REQUEST_TYPE not in document:
        return False
    request_type = document[REQUEST_TYPE]
    if request_type not in (NEW, CLOSE):
        raise InvalidField(REQUEST_TYPE, f"it must be {NEW} or {CLOSE}")
    if len(document) > 1:
        raise InvalidField(REQUEST_TYPE, "a body that opens or closes a session has no other field")
    sessions = sessions_of(service, REQUEST_TYPE)
    if request_type == NEW:
        session = sessions.begin()
        _reply(exchange, {"session_id": session.identity, "status": "open"}, (NEW_HEADER, session.header()))
        return True
    if not identity:
        raise MissingField(HEADER, "send the id of the session to close")
    sessions.close(identity)
    _reply(exchange, {"session_id": identity, "status": "closed"}, (CLOSED_HEADER, identity))
    return True


def manage_session_of_code(service: Service, exchange: Exchange, identity: str | None) -> bool:
    """As `manage_session`, before the model's own code gets a request: whatever has another field is the code's.

    :raises EndpointError: the session cannot be opened or closed.
    """
    body = exchange.body
    if service.sessions is not None and len(body) <= LONGEST_REQUEST and REQUEST_TYPE.encode() in body:
        try:
            document = decode(body)
        except InvalidBody:
            document = {}
        if document.keys() == {REQUEST_TYPE} and document[REQUEST_TYPE] in (NEW, CLOSE):
            return manage_session(service, exchange, document, identity)
    return False


def close_unseen(service: Service, exchange: Exchange) -> None:
    """Closes the session that a request has opened, unless its client has the reply. Call before an error is sent, and
    at the end.

    Of an error, InvokeEndpoint passes on no headers, so its client does not learn the session's id.
    """
    seen = exchange.sent or (exchange.finished and exchange.open)
    for header in [header for header in exchange.headers if header[0] == NEW_HEADER and not seen]:
        exchange.headers.remove(header)
        with suppress(SessionNotFound):  # it has expired
            sessions_of(service).close(header[1].partition(";")[0])


def sessions_of(service: Service, field: str = HEADER) -> Sessions:
    """The endpoint's sessions.

    :param field: what the request asks for them with.

    :raises SessionsDisabled: sessions are switched off.
    """
    if service.sessions is None:
        raise SessionsDisabled(field)
    return service.sessions


def _reply(exchange: Exchange, document: dict[str, str], header: Header) -> None:
    exchange.headers.append(header)
    exchange.send(200, (("Content-Type", "application/json"),), encode(document))
