"""Errors in the body of a request: its fields, its prompt and the prompt's length, the model that it names."""

from __future__ import annotations

import math

from handler.errors.base import ClientError


class InvalidBody(ClientError):
    """The body cannot be read: it is not JSON, not UTF-8, not an object, or nested too deeply; or it is no form."""

    code = "invalid_body"

    def __init__(self, problem: str, fix: str = "one JSON object, encoded as UTF-8") -> None:
        super().__init__(f"The request body cannot be read: {problem}. Send {fix}.")


class BodyQuarantined(ClientError):
    """The engine has died while it ran this body alone. `retry_after` is in seconds."""

    code = "body_quarantined"

    def __init__(self, seconds: float) -> None:
        self.retry_after = math.ceil(seconds)
        super().__init__(
            "The engine's process has ended while it ran only a request with this body, which is refused for another "
            f"{self.retry_after} s: change the request, or try again then."
        )


class InvalidField(ClientError):
    """One field has a value that cannot be used."""

    code = "invalid_value"

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"Field '{field}': {problem}.", param=field)


class MissingField(ClientError):
    """The body has no prompt, or lacks a field that another field needs."""

    code = "missing_field"

    def __init__(self, field: str, fix: str) -> None:
        self.field = field
        super().__init__(f"Field '{field}' is missing: {fix}.", param=field)


class UnknownField(ClientError):
    """The body has an unknown field whose name is almost that of a known one."""

    code = "unknown_field"

    def __init__(self, field: str, meant: str) -> None:
        self.field, self.meant = field, meant
        super().__init__(f"Field '{field}' is not known: did you mean '{meant}'?", param=field)


class UnsupportedField(ClientError):
    """A field of the API that this endpoint does not support. It is rejected rather than ignored."""

    code = "unsupported_field"

    def __init__(self, field: str, fix: str) -> None:
        self.field = field
        super().__init__(f"Field '{field}' is not supported by this endpoint: {fix}.", param=field)


class PlainTextOnly(ClientError):
    """The request needs vLLM's serving classes, and this software does not know those of the installed vLLM."""

    code = "unsupported_field"

    def __init__(self) -> None:
        super().__init__(
            "This endpoint's version of vLLM supports only a prompt and generated text here: "
            "leave out tools, logprobs, 'n', 'response_format' and similar fields."
        )


class UnsupportedTask(ClientError):
    """The served model has another task: it makes embeddings rather than text, or text rather than embeddings."""

    code = "unsupported_task"

    def __init__(self, path: str, does: str, fix: str) -> None:
        self.path = path
        super().__init__(f"{path} is not available on this endpoint, because its model {does}: {fix}.", param=path)


class RequestRefused(ClientError):
    """vLLM's own checks reject the request. `problem` is vLLM's message, without what the client sent."""

    def __init__(self, problem: str, param: str | None = None) -> None:
        self.problem = problem
        super().__init__(f"The request was rejected: {problem.rstrip('.')}.", param=param)


class NothingStored(ClientError):
    """The request names a stored object that does not exist here."""

    status = 404
    code = "not_found"

    def __init__(self, problem: str, param: str | None = None) -> None:
        super().__init__(f"{problem.rstrip('.')}.", param=param)


class ModelNotFound(ClientError):
    """The request names a model that this endpoint does not serve."""

    status = 404
    code = "model_not_found"

    def __init__(self, model: str, served: tuple[str, ...], field: str = "model") -> None:
        self.model, self.served = model, served
        names = ", ".join(f"'{name}'" for name in served)
        super().__init__(
            f"The model '{model[:200]}' is not served here: use {names}, or leave '{field}' out.", param=field
        )


class PromptTooLong(ClientError):
    """The prompt and the requested output do not fit the context. Lengths are in tokens."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, max_tokens: int | None, max_model_len: int, param: str) -> None:
        if prompt_tokens >= max_model_len:
            problem = f"the prompt has {prompt_tokens} tokens and leaves no room for an answer"
            fix = "shorten the prompt"
        else:
            problem = f"the prompt has {prompt_tokens} tokens and {max_tokens} output tokens are requested"
            fix = f"lower '{param}' to {max_model_len - prompt_tokens} or less, or shorten the prompt"
        super().__init__(f"This model's context is {max_model_len} tokens, but {problem}: {fix}.", param=param)


class PromptOverLimit(ClientError):
    """The prompt is longer than the compiled graphs allow. Lengths are in tokens."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, most: int) -> None:
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, and this model was compiled for prompts of {most} tokens at most: "
            "shorten the prompt.",
            param="prompt",
        )


class TextTooLong(ClientError):
    """The text cannot fit the context, even if each of its tokens were the longest one. Lengths are in characters.

    It is rejected before it is tokenized.
    """

    code = "context_length_exceeded"

    def __init__(self, characters: int, most: int, param: str) -> None:
        super().__init__(
            f"The prompt has {characters} characters, and this model's context holds at most {most}: "
            "shorten the prompt.",
            param=param,
        )


class ContextExceeded(RequestRefused):
    """As `PromptTooLong`, with vLLM's message."""

    code = "context_length_exceeded"
