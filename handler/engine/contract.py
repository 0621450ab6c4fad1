"""What the rest of this software asks of an engine, whatever generation of vLLM runs it.

vLLM's own contract is `EngineClient` (vllm/engine/protocol.py), whose verbs are the same from 0.9 to 0.32. This is the
part of it that is used here, in terms of this software. `handler.engine.launch` chooses the adapter. Nobody else
asks for vLLM's version: what an engine may lack is a field of `EngineFacts`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from handler.config.endpoint_config import EndpointConfig
from handler.engine.api_routes import Route, Traits
from handler.engine.frontend_args import FrontendSettings
from handler.engine.generation.generation import Generation, Sampling, StageListener, TokenCounts
from handler.engine.generation.request_cost import CostLimits
from handler.engine.queue_limits import QueueLimits
from handler.errors import EndpointError
from handler.json_value import Json
from handler.neuron.length_limits import LengthLimits


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine is started with, beside vLLM's own arguments.

    :param queue: what the core may have at the same time, for a number of slots.
    :param cost: the limits of one request's products.
    :param lengths: the limits of the compiled graphs.
    :param max_output: the output tokens of a request that gives no number. None: as many as the context has room for.
    :param further: this process has other engines already, whose metrics must be kept.
    """

    queue: Callable[[int], QueueLimits]
    cost: CostLimits
    front_end: FrontendSettings
    lengths: LengthLimits
    max_output: int | None = None
    further: bool = False


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The facts of a running engine.

    :param context: the longest sequence of prompt and output, in tokens.
    :param vocab_size: one more than the largest token id.
    :param slots: how many sequences are decoded at the same time, by all cores together.
    :param sampling_defaults: the model's own (generation_config.json), else vLLM's.
    :param default_max_tokens: the output tokens that generation_config.json sets.
    :param media_domains: the hosts from which media may be fetched.
    :param tokenizer: one that nothing else uses. It neither cuts nor pads.
    :param longest_token: the length of its longest token, in characters, or in bytes for a vocabulary of bytes.
    :param template: the chat template. None: the model has none.
    :param content_as_parts: the template expects a message's content as a list of parts.
    :param caches_prefixes: a prompt that begins like an earlier one reuses its key-value cache.
    :param adapters: how many LoRA adapters fit in memory, and the largest rank. None: started without LoRA.
    :param grammars: a request may have a grammar.
    """

    context: int
    vocab_size: int
    slots: int
    sampling_defaults: Mapping[str, float]
    default_max_tokens: int | None
    media_domains: tuple[str, ...]
    tokenizer: Any
    longest_token: int
    template: str | None
    content_as_parts: bool
    caches_prefixes: bool
    adapters: tuple[int, int] | None
    grammars: bool


class EngineAdapter(Protocol):
    """A running engine. Coroutines, `record_steps` and `unfinished` are called on its loop.

    :ivar serving: vLLM's OpenAI serving classes. None: they are not known for this vLLM, and plain text is served.
    :ivar metrics_registry: vLLM's metrics of a further engine. None: they are in prometheus_client's global registry.
    """

    facts: EngineFacts
    serving: Serving | None
    metrics_registry: CollectorRegistry | None

    def sampling_params(self, sampling: Sampling, max_tokens: int, stream: bool) -> object:
        """vLLM's sampling parameters, checked by vLLM.

        :raises InvalidField: vLLM rejects a parameter.
        """
        ...

    async def add(self, generation: Generation, params: Any, sink: StageListener, lora: Any = None) -> str | None:
        """Queues a request, whose tokens go to the sink.

        :param params: what `sampling_params` returned.
        :param lora: what `lora_request` returned, for the request's adapter.
        :returns: what `abort` needs. None: the request has ended already.
        :raises Exception: `as_endpoint_error` translates it.
        """
        ...

    async def abort(self, name: str) -> None:
        """Frees a request's slot."""
        ...

    def as_endpoint_error(self, error: object) -> EndpointError:
        """The endpoint error for an exception that the engine raised for one request."""
        ...

    def unfinished(self) -> int:
        """How many requests hold a slot or wait for one."""
        ...

    def record_steps(self) -> None:
        """Brings vLLM's metrics up to date."""
        ...

    async def probe(self) -> None:
        """A round trip through the core's busy loop, which answers between two steps. The answer proves that it runs.

        :raises Exception: the engine is dead.
        """
        ...

    def is_dead(self) -> bool: ...

    def pids(self) -> tuple[int, ...]:
        """The process ids of the engine's cores, then of their workers."""
        ...

    def exit_statuses(self) -> list[int]:
        """Of the cores that have ended, as in `multiprocessing`: a negative one is a signal."""
        ...

    def shutdown(self) -> None:
        """Call in another thread than the loop's, which still runs."""
        ...

    def lora_request(self, identity: int, name: str, path: str) -> Any:
        """vLLM's reference to a LoRA adapter. `identity` must never be used for another one."""
        ...

    async def add_lora(self, request: Any) -> None:
        """Loads an adapter into the engine's memory.

        :raises ValueError: vLLM rejects it. The message is one line.
        :raises EngineFailed: the core has ended.
        """
        ...

    async def remove_lora(self, identity: int) -> None: ...


class EngineGeneration(Protocol):
    """A module: how engines of one generation of vLLM are started."""

    def preload(self, *, core: bool = False) -> None:
        """Imports vLLM and its serving classes, which takes 7 to 10 s. The plan's environment must be set before.

        :param core: also imports what the engine core needs, for a fork of this process.
        """
        ...

    def parse(self, arguments: Mapping[str, Json], config: EndpointConfig, front_end: FrontendSettings) -> Any:
        """A plan's engine arguments, parsed by vLLM's own parser.

        :raises SettingError: vLLM rejects one, or has no such parser for tools or reasoning. It names the setting.
        """
        ...

    async def start(self, arguments: Any, settings: EngineSettings) -> EngineAdapter:
        """Starts an engine on the running loop, which will serve it.

        :param arguments: what `parse` returned.
        :raises Exception: any error that vLLM raises when it cannot start. The core has printed the reason.
        """
        ...


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that vLLM's own request model has accepted.

    :param request: vLLM's model of it.
    :param raw: what vLLM asks of an HTTP request.
    :ivar tokens: the tokens that were counted so far.
    """

    route: Route
    request: Any
    raw: Any
    stream: bool
    model: str | None
    tokens: TokenCounts = field(default_factory=TokenCounts)


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A reply of one document.

    :param document: vLLM's model of it.
    :param text: encodes it. Call it in the thread that sends it, not on the loop.
    """

    document: Any
    text: Callable[[], str]


class Serving(Protocol):
    """vLLM's own OpenAI serving classes, over one engine."""

    traits: Traits

    def fields(self, route: Route) -> frozenset[str]:
        """The names of all fields that vLLM accepts on a route."""
        ...

    def schemas(self) -> tuple[dict[Route, Any], dict[Route, Any], dict[str, Any]]:
        """The JSON Schemas of each route's body, of its reply, and of their parts. Takes about 3 s."""
        ...

    def request(self, route: Route, document: Mapping[str, Any], headers: Mapping[str, str]) -> PreparedRequest:
        """Checks a request with vLLM's own models. May be called from any thread.

        :raises ClientError: a field is wrong, or the served model has another task.
        """
        ...

    def use_adapter(self, prepared: PreparedRequest, name: str, request: Any) -> None:
        """Makes vLLM answer a request for the model `name` with a LoRA adapter. Call on the loop.

        :param name: the adapter's name, or the model's own name if the request uses the adapter of zeros.
        :param request: vLLM's LoRARequest. Its name may differ from the one that clients use.
        """
        ...

    async def reply(self, prepared: PreparedRequest) -> WholeReply | AsyncIterator[str]:
        """Answers a request with one document or a stream of events. Call on the loop.

        Cancelling the awaiting task frees the slots.

        :raises EndpointError: the request failed, before or during a stream.
        """
        ...
