"""Queues a plain request whose tokens go to a sink, and collects its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.output_processor import RequestOutputCollector

from handler.engine.engine_client.client_sampling import REJECTED
from handler.engine.generation.generation import Generation, StageListener, StopReason, Times
from handler.errors import EndpointError


class SinkCollector(RequestOutputCollector):  # type: ignore[misc]  # vLLM is untyped from here
    """Receives a request's outputs from vLLM's output processor, and pushes them to a sink.

    :param apart: tokens of different steps are never pushed together.
    :param rejection: what a request with a grammar gets if it ends with `REJECTED`.
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
        if self._rejection is not None and finish == REJECTED:
            self.sink.fail(self._rejection)
        else:
            self.sink.push(text, ids, finish, reason)


async def add_request(
    llm: AsyncLLM,
    generation: Generation,
    prompt: object,
    params: SamplingParams,
    sink: StageListener,
    translate: Callable[[Exception], EndpointError],
    lora: object = None,
    rejection: EndpointError | None = None,
) -> str:
    """Queues a request for text only, whose tokens go to a sink.

    :param rejection: as `SinkCollector`'s.
    :returns: vLLM's internal id.
    :raises Exception: vLLM's input processor rejects the request, or the engine is dead (`EngineDeadError`).
    """
    if llm.errored:
        raise EngineDeadError()
    processor = llm.input_processor
    tasks = await llm.get_supported_tasks()
    request = processor.process_inputs(
        generation.request_id,
        prompt,
        params,
        lora_request=lora,
        trace_headers=generation.trace,
        supported_tasks=tasks,
    )
    processor.assign_request_id(request)
    kind = request.sampling_params.output_kind
    collector = SinkCollector(request.request_id, kind, sink, translate, apart=generation.apart, rejection=rejection)
    collector.times = generation.times
    await llm._add_request(request, None, None, 0, collector)
    return str(request.request_id)
