"""The routes of OpenAI's API, and the engine's properties that decide how a route is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Route(StrEnum):
    """A path that vLLM's serving classes answer."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    EMBEDDINGS = "/v1/embeddings"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"
    SCORE = "/score"
    RERANK = "/rerank"
    CLASSIFY = "/classify"
    POOLING = "/pooling"
    TRANSCRIPTIONS = "/v1/audio/transcriptions"
    TRANSLATIONS = "/v1/audio/translations"


# The routes whose bodies are forms with an audio file.
SPEECH: Final = frozenset((Route.TRANSCRIPTIONS, Route.TRANSLATIONS))
TRANSCRIBE: Final = "transcription"
# Other paths of the same routes: those of Jina's and Cohere's clients.
ALIASES: Final[Mapping[str, Route]] = {
    "/v1/score": Route.SCORE,
    "/v1/rerank": Route.RERANK,
    "/v2/rerank": Route.RERANK,
}


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of an engine that decide how a request is answered.

    :param tasks: what the model does, as vLLM names it: `generate`, `transcription`, or `embed`, `classify` ... Whisper
        has `transcription` alone.
    :param multimodal: the model accepts images, audio or video.
    :param priorities: the scheduler uses a request's `priority`.
    :param plain_chat: the answer to a chat is the generated text, unchanged. False if a reasoning parser splits it, or
        if the model has its own message format (gpt-oss, Mistral's tokenizer).
    :param plain_usage: the usage object has no details (`enable_prompt_tokens_details` is off).
    """

    tasks: frozenset[str] = frozenset({"generate"})
    multimodal: bool = False
    priorities: bool = False
    plain_chat: bool = True
    plain_usage: bool = True

    @property
    def generates(self) -> bool:
        """The model continues a text."""
        return "generate" in self.tasks

    @property
    def pooling(self) -> bool:
        """The model generates no text, neither from a text nor from speech."""
        return not self.generates and TRANSCRIBE not in self.tasks


PLAIN = Traits()
