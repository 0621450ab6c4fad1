"""The reply to an `inputs` request: `generated_text`, TGI's details, and token events.

A request with several generations, a list of texts or `best_of`, has a whole reply only.

Sources: text-generation-inference, router/src/lib.rs (GenerateResponse, StreamResponse, Details, StreamDetails);
djl-serving, djl_python/lmi_vllm/request_response_utils.py, and for the rolling batch, by which LMI ran on Neuron,
serving/docs/lmi/user_guides/lmi_input_output_schema.md (0.31) and djl_python/{output_formatter,request_io}.py. LMI's
whole reply is an object, TGI's is a list with this object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handler.engine.generation.generation import Position, StopReason
from handler.engine.generation.token_pieces import TokenText
from handler.schemas.multiple_generations import MultipleReply
from handler.schemas.reply import Reply, encode, event_of


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What a reply contains.

    :param tgi: whether it has TGI's form rather than LMI's.
    :param inputs: the text of the prompt, which is in LMI's details. None for messages.
    :param prefix: put in front of the generated text: the prompt, with `return_full_text`.
    :param prompt: the token ids of the prompt.
    :param prefill: whether its log probabilities are requested.
    :param stop_token_ids: the end tokens that the request names.
    """

    tgi: bool
    inputs: str | None
    prefix: str
    details: bool
    top_n_tokens: int
    seed: int | None
    prompt: Sequence[int]
    prefill: bool
    stop_token_ids: Sequence[int]


class InputsReply(Reply):
    """The reply to one request. It also receives the log probabilities (`generation.Scores`)."""

    __slots__ = ("_count", "_options", "_positions", "_prompt", "_text", "_tokens")

    def __init__(self, options: ReplyOptions, tokens: TokenText) -> None:
        self._options = options
        self._tokens = tokens
        self._text = [options.prefix]
        self._count = 0
        self._positions: Sequence[Position] = ()
        self._prompt: Sequence[Position | None] = ()

    def receive(self, tokens: Sequence[Position], prompt: Sequence[Position | None] | None) -> None:
        self._positions = tokens
        if prompt is not None:
            self._prompt = prompt

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        """One event for each token.

        A step may make several tokens (speculation). Each has its own text if these add up to the text of the step.
        Otherwise the last token has the whole text.
        """
        self._text.append(text)
        texts = self._texts(text, token_ids)
        events = []
        for place, (token_id, piece) in enumerate(zip(token_ids or (None,), texts, strict=True)):
            last = finish_reason is not None and place == len(texts) - 1
            self._count += token_id is not None
            event: dict[str, object] = {"index": self._count, "token": self._stream_token(token_id, piece, place)}
            if self._options.top_n_tokens:
                event["top_tokens"] = self._top(place)
            event["generated_text"] = "".join(self._text) if last else None
            event["details"] = None
            if last and finish_reason is not None and self._options.details:
                event["details"] = {
                    "finish_reason": self._reason(finish_reason, stop_reason),
                    "generated_tokens": self._count,
                    "seed": self._options.seed,
                    "input_length": len(self._options.prompt),
                    **self._inputs(),
                }
            events.append(event_of(event))
        self._positions = ()
        return b"".join(events)

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        document = self.document(text, token_ids, finish_reason, stop_reason)
        return encode([document] if self._options.tgi else document)

    def document(
        self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason
    ) -> dict[str, object]:
        """The whole answer."""
        document: dict[str, object] = {"generated_text": self._options.prefix + text}
        if self._options.details:
            document["details"] = self.details(token_ids, finish_reason, stop_reason)
        return document

    def details(
        self, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason
    ) -> dict[str, object]:
        """TGI's details. A log probability is null if the device does not return it."""
        pieces = self._tokens.pieces(token_ids, self._options.prompt)
        tokens = [
            self._token(token, piece, self._tokens.special(token), place)
            for place, (token, piece) in enumerate(zip(token_ids, pieces, strict=True))
        ]
        details: dict[str, object] = {
            "finish_reason": self._reason(finish_reason or "length", stop_reason),
            "generated_tokens": len(token_ids),
            "seed": self._options.seed,
            "prefill": self._prefill(),
            "tokens": tokens,
            **self._inputs(),
        }
        if self._options.top_n_tokens:
            details["top_tokens"] = [self._top(place) for place in range(len(token_ids))]
        return details

    def mean_logprob(self) -> float:
        """The mean log probability of the answer's tokens, by which `best_of` selects."""
        return sum(position[0].logprob for position in self._positions) / max(len(self._positions), 1)

    def _reason(self, finish_reason: str, stop_reason: StopReason) -> str:
        """vLLM's finish reason as TGI's. A token that the request does not name is an end token of the model."""
        if finish_reason == "length":
            return "length"
        if isinstance(stop_reason, str) or stop_reason in self._options.stop_token_ids:
            return "stop_sequence"
        return "eos_token"

    def _texts(self, text: str, token_ids: Sequence[int]) -> list[str]:
        if len(token_ids) < 2:
            return [text]
        pieces = [position[0].text for position in self._positions]
        if len(pieces) == len(token_ids) and "".join(pieces) == text:
            return pieces
        return [""] * (len(token_ids) - 1) + [text]

    def _stream_token(self, token_id: int | None, text: str, place: int) -> dict[str, object]:
        """A token of a stream.

        A special token without text gets its text in TGI's form, because TGI's clients skip special tokens. LMI's
        clients use every text, so they get none.
        """
        special = token_id is not None and not text and self._tokens.special(token_id)
        if special and token_id is not None and self._options.tgi:
            (text,) = self._tokens.pieces([token_id])
        return self._token(token_id, text, special, place)

    def _token(self, token_id: int | None, text: str, special: bool, place: int) -> dict[str, object]:
        logprob = self._positions[place][0].logprob if place < len(self._positions) else None
        return self._scored(token_id, text, logprob) | {"special": special}

    def _scored(self, token_id: int | None, text: str, logprob: float | None) -> dict[str, object]:
        """A token with its log probability: `log_prob` in LMI's rolling batch, `logprob` in LMI's vLLM service."""
        token: dict[str, object] = {"id": token_id, "text": text, "logprob": logprob}
        if not self._options.tgi:
            token["log_prob"] = logprob
        return token

    def _inputs(self) -> dict[str, object]:
        inputs = self._options.inputs
        return {} if self._options.tgi or inputs is None else {"inputs": inputs}

    def _top(self, place: int) -> list[dict[str, object]]:
        if place >= len(self._positions):
            return []
        likeliest = sorted(self._positions[place], key=lambda score: -score.logprob)[: self._options.top_n_tokens]
        return [
            self._scored(token, text, logprob) | {"special": self._tokens.special(token)}
            for token, logprob, text in likeliest
        ]

    def _prefill(self) -> list[dict[str, object]]:
        ids = self._options.prompt if self._options.prefill else ()
        scores = self._prompt if len(self._prompt) == len(ids) else [None] * len(ids)
        return [
            self._scored(token, piece, None if position is None else position[0].logprob)
            for token, piece, position in zip(ids, self._tokens.pieces(ids), scores, strict=True)
        ]


class ListReply(MultipleReply):
    """A list of answers, in the order of the inputs."""

    __slots__ = ("_replies",)

    def __init__(self, replies: Sequence[InputsReply]) -> None:
        super().__init__()
        self._replies = replies

    def documents(self) -> list[dict[str, object]]:
        return [reply.document(*output) for reply, output in zip(self._replies, self.outputs, strict=True)]

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return encode(self.documents())


class BestOfReply(ListReply):
    """The answer with the highest mean log probability per token. The other answers are in its details.

    Source: text-generation-inference, router/src/infer/mod.rs (generate_best_of).
    """

    __slots__ = ("_tgi",)

    def __init__(self, replies: Sequence[InputsReply], *, tgi: bool) -> None:
        super().__init__(replies)
        self._tgi = tgi

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        means = [reply.mean_logprob() for reply in self._replies]
        others = self.documents()
        best = others.pop(means.index(max(means)))
        details = best.get("details")
        if isinstance(details, dict):
            details["best_of_sequences"] = [_flat(document) for document in others]
        return encode([best] if self._tgi else best)


def _flat(document: dict[str, object]) -> dict[str, object]:
    details = document["details"]
    assert isinstance(details, dict)
    return {
        "generated_text": document["generated_text"],
        **{name: value for name, value in details.items() if name != "inputs"},
    }
