"""A program of its own, because it imports vLLM: the way of tokens over a real socket, without a core behind it.

Prints what each sink was given, one JSON object for each story.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import zmq
import zmq.asyncio
from prometheus_client import Histogram
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from vllm.v1.engine.core_client import BackgroundResources
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.engine.parallel_sampling import ParentRequest
from vllm.v1.metrics.stats import IterationStats, PrefixCacheStats, SchedulerStats
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.queue_limits import ONE_BY_ONE, PaceLimit, QueueLimits
from handler.engine.v1.queued_requests import QueuedRequests
from handler.engine.v1.tokens import step_statistics
from handler.engine.v1.tokens.sink_collector import SinkCollector
from handler.engine.v1.tokens.token_path import TokenPath
from handler.errors import EndpointError, EngineFailed, InvalidField

TEXT = "What does /ping mean? It says whether the endpoint is able to answer now."
DEAD = b"ENGINE_CORE_DEAD"
NEVER = 3600.0  # seconds
# Fields of a request that have no default. 0.24.0 and later do not have the first.
UNSET = {"eos_token_id", "mm_features", "pooling_params", "lora_request", "cache_salt", "data_parallel_rank"}


@dataclass
class Heard:
    """A sink."""

    pushes: list[tuple[str, list[int], str | None]] = field(default_factory=list)
    failed: bool = False
    ended: bool = False

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: object) -> None:
        self.pushes.append((text, list(token_ids), finish_reason))

    def fail(self, error: EndpointError) -> None:
        self.failed = True


class Client(SimpleNamespace):
    """As vLLM's client of several cores."""

    async def process_engine_outputs(self, outputs: EngineCoreOutputs) -> None:
        self.ended |= outputs.finished_requests or set()

    async def abort_requests_async(self, names: list[str]) -> None:
        self.aborted += names


def core_request(name: str, params: SamplingParams) -> EngineCoreRequest:
    unset = dict.fromkeys(UNSET & {*EngineCoreRequest.__struct_fields__})
    return EngineCoreRequest(
        name, [1, 2, 3], sampling_params=params, arrival_time=time.time(), external_req_id=name, **unset
    )


class Story:
    """One token path, and the far end of its socket."""

    def __init__(self, tokenizer: Any, pace: PaceLimit | None = None, share: int = 1000) -> None:
        context = zmq.asyncio.Context.instance()
        output = context.socket(zmq.PULL)
        address = f"inproc://tokens-{id(self)}-{time.monotonic_ns()}"
        output.bind(address)
        self.core = zmq.Context(context).socket(zmq.PUSH)
        self.core.connect(address)
        self.encoder = MsgpackEncoder()
        self.processor = OutputProcessor(tokenizer, log_stats=True)
        resources = BackgroundResources(ctx=None, output_socket=output)
        client = Client(resources=resources, decoder=MsgpackDecoder(EngineCoreOutputs), utility_results={})
        client.ended, client.aborted, client.add_request_async = set(), [], self.sent
        self.histogram = Histogram("gaps", "", ["engine"], registry=None)
        llm = SimpleNamespace(
            engine_core=client,
            output_processor=self.processor,
            logger_manager=SimpleNamespace(stat_loggers=(), record=self.record),
            _add_request=self.enter,
            input_processor=SimpleNamespace(stat_mm_cache=lambda: None),
            renderer=SimpleNamespace(mm_processor_cache=None),
            log_stats=True,
            output_handler=None,
        )
        self.llm = llm
        self.records: list[dict[str, int]] = []
        self.core_has: list[str] = []
        queued = QueuedRequests(llm, QueueLimits(slots=1000, share=share, reserved=0, pace=pace), None)
        self.queue = queued.queue
        self.path = TokenPath.install(llm, queued.queue, queued.process_outputs)
        self.sizes = Histogram("sizes", "", registry=None, buckets=(1, 2, 4, 8))
        self.path.statistics.gap_histograms = [{0: self.histogram.labels("0")}]
        self.path.statistics.size_histograms = [{0: self.sizes}]
        self.sinks: dict[str, Heard] = {}

    def record(self, scheduler_stats: SchedulerStats, iteration_stats: IterationStats | None, **others: object) -> None:
        """The last of vLLM's own functions that gets the statistics of steps."""
        caches, steps = scheduler_stats.prefix_cache_stats, iteration_stats or IterationStats()
        self.records.append(
            {
                "waiting": scheduler_stats.num_waiting_reqs,
                "queries": caches.queries,
                "hits": caches.hits,
                "tokens": steps.num_generation_tokens,
                "ended": len(steps.finished_requests),
            }
        )

    async def sent(self, request: EngineCoreRequest) -> None:
        self.core_has.append(request.request_id)

    async def enter(self, request: EngineCoreRequest, prompt: Any, parent: Any, index: int, collector: Any) -> None:
        """As `AsyncLLM._add_request`."""
        self.processor.add_request(request, prompt, parent, index, collector)
        await self.llm.engine_core.add_request_async(request)

    def request(self, name: str, **collected: Any) -> None:
        kind = RequestOutputKind.FINAL_ONLY if collected.pop("whole", False) else RequestOutputKind.DELTA
        params = SamplingParams(max_tokens=100, output_kind=kind, stop=collected.pop("stop", []))
        sink = self.sinks[name] = Heard()
        request = core_request(name, params)
        collector = SinkCollector(name, kind, sink, lambda error: EngineFailed("its process ended"), **collected)
        self.processor.add_request(request, None, queue=collector)

    def send(self, tokens: dict[str, int], finish: FinishReason | None = None, waiting: int = 0) -> None:
        outputs = [EngineCoreOutput(name, [token], finish_reason=finish) for name, token in tokens.items()]
        stats = SchedulerStats(num_waiting_reqs=waiting)
        if hasattr(stats, "num_kv_fetch_reqs_by_stage"):  # 0.32.0 and later: their scheduler says it of each step
            stats.num_kv_fetch_reqs_by_stage = {"stage": 0}
        self.send_outputs(outputs, stats, set(tokens) if finish is not None else None)

    def send_outputs(
        self, outputs: list[EngineCoreOutput], stats: SchedulerStats, ended: set[str] | None, core: int = 0
    ) -> None:
        message = EngineCoreOutputs(core, outputs=outputs, scheduler_stats=stats, finished_requests=ended)
        self.core.send_multipart(self.encoder.encode(message))

    async def heard(self) -> dict[str, object]:
        """After the loop has read all there is."""
        before = None
        while before != (before := json.dumps([sink.pushes for sink in self.sinks.values()])):
            await asyncio.sleep(0.05)
        self.path.statistics.record()
        gaps = [one.value for one in next(iter(self.histogram.collect())).samples if one.name == "gaps_count"]
        found = {name: {"pushes": sink.pushes, "failed": sink.failed} for name, sink in self.sinks.items()}
        return {**found, "gaps": gaps[0]}

    async def end(self) -> None:
        guard = self.path._resources.output_queue_task
        guard.cancel()
        await asyncio.wait([guard])
        self.core.close(0)
        self.path._resources.output_socket.close(0)


async def paced(tokenizer: Any, ids: list[int]) -> dict[str, object]:
    """One prompt at a time: a request of which the core has made nothing yet, and one that waits for it to begin."""
    story = Story(tokenizer, ONE_BY_ONE)
    queue = story.queue
    for name in ("runs", "first"):
        story.request(name)
    story.send({"runs": ids[0]})
    story.send({"runs": ids[1]})
    for _ in range(200):
        queue.replied(1000)
    await story.heard()
    assert await queue.turn("first", 3)
    second = asyncio.create_task(queue.turn("second", 3))
    story.send({"runs": ids[2]}, waiting=5)
    await story.heard()
    before = second.done()
    story.send({"first": ids[0]}, waiting=5)
    await story.heard()
    found = {"waiting": [each["waiting"] for each in story.records], "second": [before, second.done()]}
    await story.end()
    return found


async def several(tokenizer: Any, ids: list[int]) -> dict[str, object]:
    """A request for four sequences, of which two may be in the core: as 0.32.0 adds it, and as earlier versions do."""
    found: dict[str, object] = {}
    for kind in ("registered first", "one by one"):
        story = Story(tokenizer, share=2)
        parent = ParentRequest(core_request("parent", SamplingParams(n=4, max_tokens=9)))
        collector = RequestOutputCollector(RequestOutputKind.DELTA, "parent")
        GROUP.set(RequestGroup())
        children = []
        for index in range(4):
            name, params = parent.get_child_info(index)
            children.append(child := core_request(name, params))
            if kind == "one by one":
                await story.llm._add_request(child, None, parent, index, collector)
            else:
                story.processor.add_request(child, None, parent, index, collector)
        if kind == "registered first":
            for child in children:
                await story.llm.engine_core.add_request_async(child)
        names = [child.request_id for child in children]
        await asyncio.sleep(0)
        states = [sorted(map(names.index, story.processor.request_states))]
        story.send({names[0]: ids[0]}, FinishReason.LENGTH)
        await story.heard()
        states.append(sorted(map(names.index, story.processor.request_states)))
        story.processor.abort_requests(["parent"], internal=True)
        await story.heard()
        found[kind] = [*states, len(story.processor.request_states), len(story.core_has), story.queue.waiting]
        await story.end()
    GROUP.set(None)
    return found


async def rejected(tokenizer: Any, ids: list[int]) -> dict[str, object]:
    """The core ends requests with "error": two with a grammar, one of them before its first token, and one without."""
    story = Story(tokenizer)
    rejection = InvalidField("response_format", "no token is left")
    story.request("grammar", rejection=rejection)
    story.request("not compiled", rejection=rejection)
    story.request("plain")
    tokens = {"grammar": [ids[0]], "not compiled": [], "plain": [ids[0]]}
    outputs = [EngineCoreOutput(name, each, finish_reason=FinishReason.ERROR) for name, each in tokens.items()]
    story.send_outputs(outputs, SchedulerStats(), set(tokens))
    found = await story.heard()
    await story.end()
    return {**found, "ended": sorted(story.llm.engine_core.ended)}


async def stopped(tokenizer: Any, ids: list[int]) -> dict[str, object]:
    """A step has several tokens, and the stop string is in the middle. One of two requests is vLLM's own."""
    story = Story(tokenizer)
    story.request("sink", stop=["/ping"])
    own = RequestOutputCollector(RequestOutputKind.DELTA, "own")
    params = SamplingParams(max_tokens=100, output_kind=RequestOutputKind.DELTA, stop=["/ping"])
    story.processor.add_request(core_request("own", params), None, queue=own)
    story.send_outputs([EngineCoreOutput(name, ids[:8]) for name in ("sink", "own")], SchedulerStats(), None)
    await story.heard()
    completion = own.output.outputs[0]
    found: dict[str, object] = {"sink": story.sinks["sink"].pushes, "aborted": sorted(story.llm.engine_core.aborted)}
    found["own"] = [[completion.text, completion.token_ids, completion.finish_reason]]
    await story.end()
    return found


async def counted(tokenizer: Any, ids: list[int]) -> dict[str, object]:
    """Steps that are recorded together, a step that says more than can be added up, and one after which time passes."""
    story = Story(tokenizer)
    story.request("first")
    story.request("second")
    for place in range(3):
        outputs = [EngineCoreOutput(name, [ids[place]]) for name in story.sinks]
        story.send_outputs(outputs, SchedulerStats(prefix_cache_stats=PrefixCacheStats(queries=5, hits=2)), None)
    story.send({"first": ids[3]}, FinishReason.LENGTH, waiting=4)
    found: dict[str, object] = {"unread": len(story.records)}
    await story.heard()
    found["together"] = story.records.copy()
    found["sizes"] = {
        each.labels["le"]: each.value for each in next(iter(story.sizes.collect())).samples if "le" in each.labels
    }
    story.records.clear()
    for place, more in enumerate(
        (
            SchedulerStats(num_waiting_reqs=7, running_lora_adapters={"adapter": 1}),
            SchedulerStats(num_waiting_reqs=8, prefix_cache_stats=PrefixCacheStats(reset=True)),
        )
    ):
        story.send_outputs([EngineCoreOutput("second", [ids[3 + place]])], more, None)
        while len(story.records) <= place:
            await asyncio.sleep(0.01)
    found["at once"] = [each["waiting"] for each in story.records]
    story.records.clear()
    step_statistics.RECORDED_AFTER = 0.01
    story.send({"second": ids[5]}, waiting=9)
    while not story.records:
        await asyncio.sleep(0.01)
    found["in time"] = story.records[0]["waiting"]
    step_statistics.RECORDED_AFTER = NEVER
    await story.end()
    return found


async def elsewhere(tokenizer: Any, ids: list[int]) -> dict[str, object]:
    """A process with one core of several, which is not the first."""
    story = Story(tokenizer)
    story.path.statistics.gap_histograms = [{2: story.histogram.labels("0")}]
    story.path.statistics.size_histograms = [{2: story.sizes}]
    story.path.statistics.record()
    story.request("plain")
    for token in ids[:3]:
        story.send_outputs([EngineCoreOutput("plain", [token])], SchedulerStats(), None, core=2)
    found = await story.heard()
    await story.end()
    return found


async def tell(tokenizer: Any, ids: list[int]) -> dict[str, object]:
    found: dict[str, object] = {}

    def kinds(story: Story) -> list[str]:
        story.request("plain")
        story.request("apart", apart=True)
        story.request("whole", whole=True)
        story.request("stops", stop=["nowhere"])
        return list(story.sinks)

    story = Story(tokenizer)  # all steps are here before the loop looks
    names = kinds(story)
    for place, token in enumerate(ids):
        story.send(dict.fromkeys(names, token), FinishReason.LENGTH if place == len(ids) - 1 else None)
    found["behind"] = await story.heard()
    await story.end()

    story = Story(tokenizer)  # each is taken before the next is made
    names = kinds(story)
    for place, token in enumerate(ids):
        story.send(dict.fromkeys(names, token), FinishReason.LENGTH if place == len(ids) - 1 else None)
        await story.heard()
    found["in time"] = await story.heard()
    await story.end()

    found["counted"] = await counted(tokenizer, ids)
    found["paced"] = await paced(tokenizer, ids)
    found["several"] = await several(tokenizer, ids)
    found["elsewhere"] = await elsewhere(tokenizer, ids)
    found["rejected"] = await rejected(tokenizer, ids)
    found["stopped"] = await stopped(tokenizer, ids)

    story = Story(tokenizer)  # the core dies behind its last tokens
    names = kinds(story)
    for token in ids[:3]:
        story.send(dict.fromkeys(names, token))
    answer = story.llm.engine_core.utility_results[1] = asyncio.get_running_loop().create_future()
    story.core.send(DEAD)
    found["dead"] = await story.heard()
    found["waited for"] = type(answer.exception()).__name__ if answer.done() else None
    await story.end()
    return found


def main() -> None:
    step_statistics.RECORDED_AFTER = NEVER
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    print(json.dumps({"ids": ids, **asyncio.run(tell(tokenizer, ids))}))


if __name__ == "__main__":
    main()
