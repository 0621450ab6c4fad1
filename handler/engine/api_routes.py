"""The routes of OpenAI's API, by their paths: what a request asks the engine for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Route(StrEnum):
    """A path that vLLM's serving classes answer."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    EMBEDDINGS = "/v1/embeddings"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"


@dataclass(frozen=True, slots=True)
class Traits:
    """What of an engine decides how a request is answered.

    :param pooling: it makes embeddings, not text.
    :param plain_chat: a chat's answer is the generated text, as it is. Not so where a reasoning parser takes it apart,
        or where the model's messages have a format of their own (gpt-oss, Mistral's tokenizer).
    :param multimodal: it takes images, audio or video.
    :param priorities: its scheduler looks at a request's `priority`.
    :param plain_usage: usage has no details (`enable_prompt_tokens_details`).
    """

    pooling: bool = False
    multimodal: bool = False
    priorities: bool = False
    plain_chat: bool = True
    plain_usage: bool = True


PLAIN = Traits()
