"""What the replies to chats and completions on the plain path share: the head of each document, and the usage."""

from __future__ import annotations

import time

from handler.engine.engine import Engine
from handler.schemas.openai.sampling_fields import SamplingFields
from handler.schemas.reply import DONE, Reply, encode, event_of, stream_usage, usage


class PlainReply(Reply):
    """The reply to one request. The constant bytes of a chunk are made once, so a token only adds its text.

    :param kind: the `object` of a chunk.
    """

    __slots__ = ("_base", "_completion_tokens", "_each_usage", "_head", "_include_usage", "_prompt_tokens")

    def __init__(self, request_id: str, kind: str, fields: SamplingFields, prompt_tokens: int, engine: Engine) -> None:
        model = fields.model or engine.served_names[0]
        self._base: dict[str, object] = {"id": request_id, "object": kind, "created": int(time.time()), "model": model}
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        options = fields.stream_options
        self._include_usage = bool(options and options.include_usage) or engine.front_end.enable_force_include_usage
        self._each_usage = bool(options and options.include_usage and options.continuous_usage_stats)
        self._head = b"data: " + encode({**self._base, "choices": []})[:-2]

    def closing(self) -> bytes:
        if not self._include_usage:
            return DONE
        total = stream_usage(self._prompt_tokens, self._completion_tokens)
        return event_of({**self._base, "choices": [], "usage": total}) + DONE

    def _document(self, kind: str, choice: dict[str, object], completion_tokens: int, **more: None) -> bytes:
        """The whole reply.

        :param kind: its `object`.
        :param more: further fields, without a value on this path.
        """
        return encode(
            {
                **self._base,
                "object": kind,
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": None,
                "usage": usage(self._prompt_tokens, completion_tokens),
                **more,
                "kv_transfer_params": None,
            }
        )
