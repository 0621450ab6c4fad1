"""The one tree of errors: what a caller can fix (`ClientError`) and what only the endpoint can (`ServerError`).

Every error carries its fields, builds its own message and names its fix. `container.requests.error_responses` maps the
tree to HTTP in one place; nothing here knows a status line, and nothing here ever holds a prompt or a secret.
"""

from __future__ import annotations

from typing import ClassVar


class EndpointError(Exception):
    """Root of the tree.

    :param message: one or two sentences, fit for a stranger to read: what is wrong and what fixes it.
    :param param: the request field or the setting at fault, if there is one.
    """

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def document(self) -> dict[str, dict[str, str | None]]:
        """OpenAI's error object, as every reply of ours and every last event of a broken stream carries it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class ClientError(EndpointError):
    """The caller can fix it: status 4xx."""

    status = 400
    kind = "invalid_request_error"
    code = "invalid_request"


class ServerError(EndpointError):
    """Only the endpoint, or time, can fix it: status 5xx. `retry_after` is in seconds."""

    status = 500
    retry_after: ClassVar[int | None] = None


class InvalidBody(ClientError):
    """The body as a whole cannot be read: not JSON, not UTF-8, nested too deep, not an object."""

    code = "invalid_body"

    def __init__(self, problem: str) -> None:
        super().__init__(f"The request body cannot be read: {problem}. Send one JSON object, UTF-8 encoded.")


class InvalidRequest(ClientError):
    """What was sent is no HTTP request."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"The request cannot be read: {problem}.")


class InvalidField(ClientError):
    """One field has a value that cannot be used."""

    code = "invalid_value"

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"Field '{field}': {problem}.", param=field)


class MissingField(ClientError):
    """The body has no prompt in any of the forms that we read, or not what another of its fields needs."""

    code = "missing_field"

    def __init__(self, field: str, fix: str) -> None:
        self.field = field
        super().__init__(f"Field '{field}' is missing: {fix}.", param=field)


class UnknownField(ClientError):
    """A field that is not known but is one slip away from one that is."""

    code = "unknown_field"

    def __init__(self, field: str, meant: str) -> None:
        self.field, self.meant = field, meant
        super().__init__(f"Field '{field}' is not known: did you mean '{meant}'?", param=field)


class UnsupportedField(ClientError):
    """A field of the API that this endpoint does not serve. It is rejected rather than ignored."""

    code = "unsupported_field"

    def __init__(self, field: str, fix: str) -> None:
        self.field = field
        super().__init__(f"Field '{field}' is not supported by this endpoint: {fix}.", param=field)


class PromptTooLong(ClientError):
    """Prompt and answer do not fit the context. Lengths in tokens."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, max_tokens: int | None, max_model_len: int, param: str) -> None:
        self.prompt_tokens, self.max_tokens, self.max_model_len = prompt_tokens, max_tokens, max_model_len
        if prompt_tokens >= max_model_len:
            problem = f"the prompt has {prompt_tokens} tokens and leaves no room for an answer"
            fix = "shorten the prompt"
        else:
            problem = f"the prompt has {prompt_tokens} tokens and {max_tokens} more are asked for"
            fix = f"lower '{param}' to {max_model_len - prompt_tokens} or less, or shorten the prompt"
        super().__init__(f"This model's context is {max_model_len} tokens, but {problem}: {fix}.", param=param)


class PromptOverLimit(ClientError):
    """A prompt that is longer than the graphs are compiled for. Lengths in tokens."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, most: int) -> None:
        self.prompt_tokens, self.most = prompt_tokens, most
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, and this model was compiled for prompts of {most} at most: "
            "shorten the prompt.",
            param="prompt",
        )


class TextTooLong(ClientError):
    """A text that would not fit if all its tokens were the longest, so that nobody counts them. In characters."""

    code = "context_length_exceeded"

    def __init__(self, characters: int, most: int, param: str) -> None:
        self.characters, self.most = characters, most
        super().__init__(
            f"The prompt has {characters} characters, and this model's context holds {most} at most: "
            "shorten the prompt.",
            param=param,
        )


class RequestRefused(ClientError):
    """vLLM's own checks refuse the request. `problem` is vLLM's account, without what the client sent."""

    def __init__(self, problem: str, param: str | None = None) -> None:
        self.problem = problem
        super().__init__(f"The request is refused: {problem.rstrip('.')}.", param=param)


class ContextExceeded(RequestRefused):
    """As `PromptTooLong`, in vLLM's words."""

    code = "context_length_exceeded"


class UnsupportedTask(ClientError):
    """The model that is served does something else."""

    code = "unsupported_task"

    def __init__(self, path: str, does: str, fix: str) -> None:
        self.path = path
        super().__init__(f"{path} is not for this endpoint, whose model {does}: {fix}.")


class PlainTextOnly(ClientError):
    """The line's version of vLLM has serving classes that this software does not know."""

    code = "unsupported_field"

    def __init__(self) -> None:
        super().__init__(
            "This endpoint's version of vLLM serves plain text only here: leave out tools, logprobs, 'n', "
            "'response_format' and what else goes beyond a prompt and an answer."
        )


class NothingStored(ClientError):
    """A stored object that does not exist here."""

    status = 404
    kind = "not_found_error"
    code = "not_found"

    def __init__(self, problem: str, param: str | None = None) -> None:
        super().__init__(f"{problem.rstrip('.')}.", param=param)


class ModelNotFound(ClientError):
    """The request names a model that is not served here."""

    status = 404
    kind = "not_found_error"
    code = "model_not_found"

    def __init__(self, model: str, served: tuple[str, ...]) -> None:
        self.model, self.served = model, served
        names = ", ".join(f"'{name}'" for name in served)
        super().__init__(
            f"The model '{model[:200]}' is not served here: use {names}, or leave 'model' out.", param="model"
        )


class RouteNotFound(ClientError):
    """No such path."""

    status = 404
    kind = "not_found_error"
    code = "not_found"

    def __init__(self, method: str, path: str) -> None:
        super().__init__(
            f"{method} {path[:200]} is not served here: use GET /ping, POST /invocations, "
            "POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /tokenize, /detokenize "
            "or GET /v1/models."
        )


class MethodNotAllowed(ClientError):
    """The path exists, but not with this method."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, path: str, allowed: tuple[str, ...]) -> None:
        self.allowed = allowed
        super().__init__(f"{path[:200]} takes {' or '.join(allowed)}, not {method}.")


class UpgradeRequired(ClientError):
    """The path speaks WebSocket only."""

    status = 426
    code = "upgrade_required"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is a WebSocket: ask for an upgrade, or use POST /invocations.")


class BodyTooLarge(ClientError):
    """More bytes than SageMaker, or the setting, lets through."""

    status = 413
    code = "body_too_large"

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"The request body is larger than {limit_bytes:,} bytes: send less, or use an S3 input.")


class UnsupportedMediaType(ClientError):
    """A content type that is not JSON."""

    status = 415
    code = "unsupported_media_type"

    def __init__(self, content_type: str) -> None:
        self.content_type = content_type
        given = f"'{content_type[:100]}'" if content_type else "missing"
        super().__init__(f"Content-Type is {given}: send 'application/json'.", param="Content-Type")


class TooManyRequests(ClientError):
    """The endpoint is full. `retry_after` in seconds."""

    status = 429
    kind = "rate_limit_error"
    code = "too_many_requests"

    def __init__(self, limit: int, retry_after: int = 1) -> None:
        self.limit, self.retry_after = limit, retry_after
        super().__init__(f"{limit} requests are already being answered: try again in {retry_after} s.")


class RequestTimedOut(ClientError):
    """The client did not send its body in time."""

    status = 408
    code = "request_timed_out"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The request body did not arrive within {seconds:g} s.")


class NotReady(ServerError):
    """The engine is still starting."""

    status = 503
    kind = "service_unavailable_error"
    code = "starting"
    retry_after = 5

    def __init__(self, stage: str) -> None:
        self.stage = stage
        super().__init__(f"The endpoint is starting (stage: {stage}): try again when GET /ping answers 200.")


class Draining(ServerError):
    """SIGTERM was received: what runs is finished, nothing new is begun."""

    status = 503
    kind = "service_unavailable_error"
    code = "draining"
    retry_after = 5

    def __init__(self) -> None:
        super().__init__("The endpoint is shutting down and takes no new requests: try again.")


class EngineFailed(ServerError):
    """The engine died, hangs, or failed while this request ran."""

    status = 503
    kind = "service_unavailable_error"
    code = "engine_failed"
    retry_after = 10

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The engine has failed ({reason}) and is being replaced: try again.")


class GenerationFailed(ServerError):
    """One request failed inside the engine; the engine goes on."""

    code = "generation_failed"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The engine could not finish this request ({reason}).")


class DeadlineExceeded(ServerError):
    """The reply could no longer be of use: whoever waits for it gives up now. Its slot is freed."""

    status = 504
    kind = "timeout_error"
    code = "deadline_exceeded"

    def __init__(self, seconds: float, *, stream: bool) -> None:
        self.seconds = seconds
        fix = "ask for fewer tokens" if stream else "ask for fewer tokens, or set 'stream'"
        super().__init__(f"The request was ended after {seconds:g} s, its deadline: {fix}.")


class SettingError(EndpointError):
    """A setting that cannot work: the process ends at once instead of failing a health check an hour later.

    :param setting: the variable or file key at fault.
    """

    code = "invalid_setting"

    def __init__(self, setting: str, problem: str, fix: str) -> None:
        self.setting, self.problem, self.fix = setting, problem, fix
        super().__init__(f"{setting}: {problem}. {fix}", param=setting)


class StartFailed(ServerError):
    """A stage of the start failed for a reason that is not a setting."""

    code = "start_failed"

    def __init__(self, stage: str, reason: str) -> None:
        self.stage, self.reason = stage, reason
        super().__init__(f"The start failed at '{stage}': {reason}")
