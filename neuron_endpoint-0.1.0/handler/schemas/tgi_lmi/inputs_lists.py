"""Replies to an `inputs` body with several generations: a list of texts, and `best_of`. They are never streamed."""

from __future__ import annotations

from collections.abc import Sequence

from handler.engine.generation.generation import StopReason
from handler.schemas.multiple_generations import Output
from handler.schemas.reply import Reply, encode
from handler.schemas.tgi_lmi.inputs_reply import InputsReply


class _WholeReply(Reply):
    """What both replies share. They have no events."""

    __slots__ = ("_documents", "_replies")

    def __init__(self, replies: Sequence[InputsReply]) -> None:
        self._replies = replies
        self._documents: list[dict[str, object]] = []

    def receive_all(self, outputs: Sequence[Output]) -> None:
        self._documents = [reply.document(*output) for reply, output in zip(self._replies, outputs, strict=True)]

    def event(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return b""


class ListReply(_WholeReply):
    """A list of answers, in the order of the inputs."""

    __slots__ = ()

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        return encode(self._documents)


class BestOfReply(_WholeReply):
    """The answer with the highest mean log probability per token. The other answers are in its details.

    Source: text-generation-inference, router/src/infer/mod.rs (generate_best_of).
    """

    __slots__ = ("_tgi",)

    def __init__(self, replies: Sequence[InputsReply], *, tgi: bool) -> None:
        super().__init__(replies)
        self._tgi = tgi

    def whole(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> bytes:
        means = [reply.mean_logprob() for reply in self._replies]
        others = list(self._documents)
        best = others.pop(means.index(max(means)))
        details = best.get("details")
        if isinstance(details, dict):
            details["best_of_sequences"] = [_flat(document) for document in others]
        return encode([best] if self._tgi else best)


def _flat(document: dict[str, object]) -> dict[str, object]:
    details = document["details"]
    assert isinstance(details, dict)
    return {"generated_text": document["generated_text"], **details}
