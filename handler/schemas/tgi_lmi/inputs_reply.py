"""The reply to one `inputs` request: `generated_text`, TGI's details, and its token events.

Sources: text-generation-inference, router/src/lib.rs (GenerateResponse, StreamResponse, Details, StreamDetails);
djl-serving, djl_python/lmi_vllm/request_response_utils.py. LMI's whole reply is an object, TGI's a list with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from handler.engine.generation.generation import Position
from handler.engine.generation.token_text import TokenText
from handler.errors import EndpointError
from handler.schemas.reply import encode, error_event, event_of


@dataclass(frozen=True, slots=True)
class Reported:
    """What of a generation its reply tells.

    :param tgi: as TGI writes it, rather than LMI.
    :param prefix: put in front of the generated text: the prompt, with `return_full_text`.
    :param prompt: ids of the prompt, where its log probabilities are asked for.
    :param prompt_tokens: how many there are.
    """

    tgi: bool
    prefix: str
    details: bool
    top_n_tokens: int
    seed: int | None
    prompt: Sequence[int]
    prompt_tokens: int


class InputsReply:
    """One request's reply; it also hears the log probabilities (`generation.Scores`)."""

    content_type: ClassVar[str] = "application/json"
    stream_content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    __slots__ = ("_count", "_positions", "_prompt", "_reported", "_text", "_tokens")

    def __init__(self, reported: Reported, tokens: TokenText) -> None:
        self._reported = reported
        self._tokens = tokens
        self._text = [reported.prefix]
        self._count = 0
        self._positions: Sequence[Position] = ()
        self._prompt: Sequence[Position | None] = ()

    def receive(self, tokens: Sequence[Position], prompt: Sequence[Position | None] | None) -> None:
        self._positions = tokens
        if prompt is not None:
            self._prompt = prompt

    def opening(self) -> bytes:
        return b""

    def event(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        """One event a token. Where a step makes several (speculation), its text is the last one's unless the tokens'
        own texts add up to it."""
        self._text.append(text)
        texts = self._texts(text, token_ids)
        events = []
        for place, (token_id, piece) in enumerate(zip(token_ids or (None,), texts, strict=True)):
            last = finish_reason is not None and place == len(texts) - 1
            self._count += token_id is not None
            event: dict[str, object] = {"index": self._count, "token": self._shown(token_id, piece, place)}
            if self._reported.top_n_tokens:
                event["top_tokens"] = self._top(place)
            event["generated_text"] = "".join(self._text) if last else None
            event["details"] = None
            if last and finish_reason is not None and self._reported.details:
                event["details"] = {
                    "finish_reason": reason(finish_reason, stop_reason),
                    "generated_tokens": self._count,
                    "seed": self._reported.seed,
                    "input_length": self._reported.prompt_tokens,
                }
            events.append(event_of(event))
        self._positions = ()
        return b"".join(events)

    def closing(self) -> bytes:
        return b""

    def broken(self, error: EndpointError) -> bytes:
        return error_event(error)

    def whole(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> bytes:
        document = self.document(text, token_ids, finish_reason, stop_reason)
        return encode([document] if self._reported.tgi else document)

    def document(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> dict[str, object]:
        """The whole answer."""
        document: dict[str, object] = {"generated_text": self._reported.prefix + text}
        if self._reported.details:
            document["details"] = self.details(token_ids, finish_reason, stop_reason)
        return document

    def details(
        self, token_ids: Sequence[int], finish_reason: str | None, stop_reason: int | str | None
    ) -> dict[str, object]:
        """TGI's details. A log probability that the device does not tell is null."""
        pieces = self._tokens.pieces(token_ids)
        tokens = [
            self._token(token, piece, self._tokens.special(token), place)
            for place, (token, piece) in enumerate(zip(token_ids, pieces, strict=True))
        ]
        details: dict[str, object] = {
            "finish_reason": reason(finish_reason or "length", stop_reason),
            "generated_tokens": len(token_ids),
            "seed": self._reported.seed,
            "prefill": self._prefill(),
            "tokens": tokens,
        }
        if self._reported.top_n_tokens:
            details["top_tokens"] = [self._top(place) for place in range(len(token_ids))]
        return details

    def mean_logprob(self) -> float:
        """Of the answer's tokens: what `best_of` goes by."""
        return sum(position[0].logprob for position in self._positions) / max(len(self._positions), 1)

    def _texts(self, text: str, token_ids: Sequence[int]) -> list[str]:
        if len(token_ids) < 2:
            return [text]
        pieces = [position[0].text for position in self._positions]
        if len(pieces) == len(token_ids) and "".join(pieces) == text:
            return pieces
        return [""] * (len(token_ids) - 1) + [text]

    def _shown(self, token_id: int | None, text: str, place: int) -> dict[str, object]:
        """A token of a stream. One without text that is special is spelled out for TGI's clients, which leave out what
        is marked so; LMI's take every text, and get none."""
        special = token_id is not None and not text and self._tokens.special(token_id)
        if special and token_id is not None and self._reported.tgi:
            (text,) = self._tokens.pieces([token_id])
        return self._token(token_id, text, special, place)

    def _token(self, token_id: int | None, text: str, special: bool, place: int) -> dict[str, object]:
        logprob = self._positions[place][0].logprob if place < len(self._positions) else None
        return {"id": token_id, "text": text, "logprob": logprob, "special": special}

    def _top(self, place: int) -> list[dict[str, object]]:
        if place >= len(self._positions):
            return []
        likeliest = sorted(self._positions[place], key=lambda score: -score.logprob)[: self._reported.top_n_tokens]
        return [
            {"id": token, "text": text, "logprob": logprob, "special": self._tokens.special(token)}
            for token, logprob, text in likeliest
        ]

    def _prefill(self) -> list[dict[str, object]]:
        ids = self._reported.prompt
        scores = self._prompt if len(self._prompt) == len(ids) else [None] * len(ids)
        return [
            {"id": token, "text": piece, "logprob": None if position is None else position[0].logprob}
            for token, piece, position in zip(ids, self._tokens.pieces(ids), scores, strict=True)
        ]


def reason(finish_reason: str, stop_reason: int | str | None) -> str:
    """vLLM's reason in TGI's words: a stop without a named cause is the model's own end."""
    if finish_reason == "length":
        return "length"
    return "eos_token" if stop_reason is None else "stop_sequence"
