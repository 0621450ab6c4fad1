"""The tree of errors: what the client can fix (`ClientError`) and what it cannot (`ServerError`).

Every error carries its fields and builds its own message, which says what is wrong and what fixes it.
`container.requests.error_responses` maps the tree to HTTP in one place. No error holds a prompt or a secret.
"""

from handler.errors.base import (
    ClientError,
    EndpointError,
    ServerError,
)
from handler.errors.length_errors import (
    ContextExceeded,
    PromptOverLimit,
    PromptTooLong,
    TextTooLong,
)
from handler.errors.protocol_errors import (
    BodyTooLarge,
    ForeignHost,
    ForeignOrigin,
    InvalidRequest,
    MethodNotAllowed,
    RequestTimedOut,
    RouteNotFound,
    TooManyRequests,
    UnsupportedMediaType,
    UpgradeRequired,
)
from handler.errors.request_errors import (
    InvalidBody,
    InvalidField,
    MissingField,
    ModelNotFound,
    NothingStored,
    PlainTextOnly,
    RequestRefused,
    UnknownField,
    UnsupportedField,
    UnsupportedTask,
)
from handler.errors.server_errors import (
    DeadlineExceeded,
    Draining,
    EngineFailed,
    GenerationFailed,
    NotReady,
)
from handler.errors.start_errors import (
    SettingError,
    StartFailed,
)

__all__ = [
    "BodyTooLarge",
    "ClientError",
    "ContextExceeded",
    "DeadlineExceeded",
    "Draining",
    "EndpointError",
    "EngineFailed",
    "ForeignHost",
    "ForeignOrigin",
    "GenerationFailed",
    "InvalidBody",
    "InvalidField",
    "InvalidRequest",
    "MethodNotAllowed",
    "MissingField",
    "ModelNotFound",
    "NotReady",
    "NothingStored",
    "PlainTextOnly",
    "PromptOverLimit",
    "PromptTooLong",
    "RequestRefused",
    "RequestTimedOut",
    "RouteNotFound",
    "ServerError",
    "SettingError",
    "StartFailed",
    "TextTooLong",
    "TooManyRequests",
    "UnknownField",
    "UnsupportedField",
    "UnsupportedMediaType",
    "UnsupportedTask",
    "UpgradeRequired",
]
