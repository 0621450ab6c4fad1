"""Errors of a prompt that is too long for the model."""

from __future__ import annotations

from handler.errors.base import ClientError
from handler.errors.request_errors import RequestRefused


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
