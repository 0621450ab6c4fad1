"""What the replies to chats and completions on the plain path share: the head of each document, and the usage."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from handler.engine.engine import Engine
from handler.engine.generation.generation import StopReason
from handler.schemas.openai.sampling_fields import SamplingFields
from handler.schemas.reply import DONE, Reply, encode, event_of, stream_usage, usage

# Fields of a whole reply about its prompt: in a chat of the reply, in a completion of the choice.
OF_PROMPT: Final = ("prompt_logprobs", "prompt_token_ids")


class PlainReply(Reply):
    """The reply to one request. The constant bytes of a chunk are made once, so a token only adds its text.

    :param kind: the `object` of a chunk.
    :cvar before_text: the bytes of a choice in front of its text.
    """

    __slots__ = (
        "_base",
        "_before",
        "_completion_tokens",
        "_each_usage",
        "_head",
        "_include_usage",
        "_prompt_tokens",
        "_rest",
    )
    before_text: ClassVar[bytes]

    def __init__(self, request_id: str, kind: str, fields: SamplingFields, prompt_tokens: int, engine: Engine) -> None:
        model = fields.model or engine.served_names[0]
        self._base: dict[str, object] = {"id": request_id, "object": kind, "created": int(time.time()), "model": model}
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        options = fields.stream_options
        self._include_usage = bool(options and options.include_usage) or engine.front_end.enable_force_include_usage
        self._each_usage = bool(options and options.include_usage and options.continuous_usage_stats)
        self._head = b"data: " + encode({**self._base, "choices": []})[:-2]
        self._before, self._rest = self._head + self.before_text, self._after(None, None)

    @abstractmethod
    def _after(self, finish_reason: str | None, stop_reason: StopReason) -> bytes:
        """The bytes of a chunk behind its text."""

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        self._completion_tokens += len(token_ids)
        if finish_reason is None and not text:
            return b""
        same = finish_reason is None and not self._each_usage
        return self._before + encode(text) + (self._rest if same else self._after(finish_reason, stop_reason))

    def closing(self) -> bytes:
        if not self._include_usage:
            return DONE
        total = stream_usage(self._prompt_tokens, self._completion_tokens)
        return event_of({**self._base, "choices": [], "usage": total}) + DONE

    def _document(
        self,
        kind: str,
        content: Mapping[str, object],
        completion_tokens: int,
        end: tuple[str | None, StopReason],
        *,
        of_choice: Iterable[str] = (),
        of_reply: Iterable[str] = (),
    ) -> bytes:
        """The whole reply.

        :param kind: its `object`.
        :param end: the finish reason and the stop reason.
        :param of_choice, of_reply: further fields, without a value on this path.
        """
        ending = {"logprobs": None, "finish_reason": end[0], "stop_reason": end[1], "token_ids": None}
        return encode(
            {
                **self._base,
                "object": kind,
                "choices": [{"index": 0, **content, **ending, **dict.fromkeys(of_choice)}],
                "service_tier": None,
                "system_fingerprint": None,
                "usage": usage(self._prompt_tokens, completion_tokens),
                **dict.fromkeys(of_reply),
                "kv_transfer_params": None,
            }
        )
