"""The errors that each kind of route can answer with. The error classes provide status and code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from container.openapi.bodies import ref
from handler import errors
from handler.batches.batch_objects import BatchEnded, BatchesOff
from handler.custom_code import code_errors as custom
from handler.engine.adapters import adapter_errors as adapters
from handler.errors import EndpointError
from handler.sessions import session_store as sessions
from handler.startup.multi_model import model_errors as models

Errors = tuple[type[EndpointError], ...]
ANY: Final[Errors] = (
    errors.InvalidRequest,
    errors.LineTooLong,
    errors.HeadersTooLong,
    errors.UnmetExpectation,
    errors.InvalidBody,
    errors.ServerError,
)
READY: Final[Errors] = (errors.NotReady, errors.Draining, errors.EngineFailed)
ENGINE: Final[Errors] = (*READY, custom.NoEngine)
PAGED: Final[Errors] = (errors.InvalidField,)
BODY: Final[Errors] = (
    errors.BodyTooLarge,
    errors.BodiesTooLarge,
    errors.UnsupportedMediaType,
    errors.RequestTimedOut,
    errors.MissingField,
    errors.InvalidField,
    errors.UnknownField,
    errors.UnsupportedField,
)
TOKENS: Final[Errors] = (
    *ENGINE,
    *BODY,
    errors.PromptTooLong,
    errors.PromptOverLimit,
    errors.TextTooLong,
    errors.RequestRefused,
    errors.ContextExceeded,
    errors.UnsupportedTask,
    errors.PlainTextOnly,
    errors.NothingStored,
    errors.ModelNotFound,
    models.ModelNotLoaded,
    models.ModelUnnamed,
    models.ModelFailed,
    models.ModelUnloaded,
    errors.TooManyRequests,
    errors.GenerationFailed,
    errors.EngineBusy,
    errors.GrammarNotTried,
    errors.DeadlineExceeded,
    errors.BodyQuarantined,
    sessions.SessionsDisabled,
    sessions.SessionNotFound,
    sessions.TooManySessions,
    adapters.AdapterRequired,
)
OWN_CODE: Final[Errors] = (custom.CustomCodeFailed, custom.CustomCodeRefused, custom.UnsupportedFormat)
NAMED: Final[Errors] = (*ENGINE, adapters.AdapterNotFound, adapters.AdaptersUnsupported)
LOADED: Final[Errors] = (*NAMED, *BODY, adapters.InvalidAdapter, adapters.AdapterExists, adapters.AdaptersFull)
BATCHES: Final[Errors] = (*ENGINE, BatchesOff, errors.NothingStored, errors.InvalidField)
BATCH_BODY: Final[Errors] = (*BATCHES, *BODY)
NEW_BATCH: Final[Errors] = (*BATCH_BODY, models.ModelUnnamed)
CANCELLED: Final[Errors] = (*BATCHES, BatchEnded)
ONE_MODEL: Final[Errors] = (*NAMED, models.ModelNotLoaded)
LOADED_MODEL: Final[Errors] = (
    *LOADED,
    models.InvalidModel,
    models.ModelExists,
    models.ModelsFull,
    models.ModelsUnsupported,
    models.ModelLoadFailed,
)
UPGRADED: Final[Errors] = (
    errors.ForeignOrigin,
    errors.UpgradeRequired,
    errors.TooManyRequests,
    models.ModelUnnamed,
    *ENGINE,
)


def responses(kinds: Iterable[type[EndpointError]]) -> dict[str, Any]:
    """The error replies by status. Each lists the codes that its error object may have."""
    codes: dict[int, set[str]] = {}
    for kind in (*ANY, *kinds):
        codes.setdefault(kind.status, set()).add(kind.code)
    return {str(status): _response(sorted(codes[status]), status) for status in sorted(codes)}


def _response(codes: list[str], status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": f"code: {', '.join(codes)}",
        "content": {"application/json": {"schema": ref("Error")}},
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return response
