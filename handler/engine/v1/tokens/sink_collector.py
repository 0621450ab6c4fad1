"""Collects the outputs of a plain request whose tokens go to a sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer
from vllm.v1.engine.output_processor import RequestOutputCollector

from handler.engine.engine_client.client_error import rejected
from handler.engine.generation.generation import StageListener, StopReason, Times
from handler.errors import EndpointError


class SinkCollector(RequestOutputCollector):  # type: ignore[misc]  # vLLM is untyped from here
    """Receives a request's outputs from vLLM's output processor, and pushes them to a sink.

    :param apart: tokens of different steps are never pushed together.
    :param rejection: what a request with a grammar gets if it is `rejected`.
    :ivar plain: the request has no stop strings and no special spacing, so the text of a token is the decoder's output.
    :ivar made: how many tokens there are so far.
    :ivar text, ids: what is made but not pushed yet.
    """

    def __init__(
        self,
        internal_id: str,
        kind: RequestOutputKind,
        sink: StageListener,
        translate: Callable[[Exception], EndpointError],
        *,
        apart: bool = False,
        rejection: EndpointError | None = None,
    ) -> None:
        super().__init__(kind, internal_id)
        self.sink = sink
        self.apart = apart
        self.whole = kind is not RequestOutputKind.DELTA
        self.plain = False
        self.made = 0
        self.step: Callable[[object, int], str | None]
        self.tokenizer: object = None
        self.text: list[str] = []
        self.ids: list[int] = []
        self.times: Times | None = None
        self._translate = translate
        self._rejection = rejection

    def use_detokenizer(self, detokenizer: Any) -> None:
        """Sets how tokens become text. Call at the first token."""
        self.plain = (
            type(detokenizer) is FastIncrementalDetokenizer
            and not detokenizer.stop
            and detokenizer.spaces_between_special_tokens
        )
        if self.plain:
            self.step, self.tokenizer = detokenizer.stream.step, detokenizer.tokenizer

    def keep(self, text: str, ids: list[int]) -> None:
        self.text.append(text)
        self.ids += ids

    def kept(self) -> tuple[str, list[int]]:
        """Returns what was kept, and forgets it."""
        text, ids = "".join(self.text), self.ids
        self.text, self.ids = [], []
        return text, ids

    def flush(self) -> None:
        if self.ids and not self.whole:
            self.sink.push(*self.kept(), None, None)

    def wanted(self) -> bool:
        return not self.sink.ended

    def put(self, output: RequestOutput | Exception) -> None:
        if isinstance(output, Exception):
            self.flush()
            self.sink.fail(self._translate(output))
        else:
            completion = output.outputs[0]
            self.end(completion.text, completion.token_ids, completion.finish_reason, completion.stop_reason)

    def end(self, text: str, ids: Sequence[int], finish: str | None, reason: StopReason) -> None:
        """Pushes the last output."""
        if self._rejection is not None and rejected(finish, ids):
            self.sink.fail(self._rejection)
        else:
            self.sink.push(text, ids, finish, reason)
