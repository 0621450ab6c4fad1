"""vLLM's engine: its start, its limits and its health. Tested on 0.13.0, 0.16.0, 0.24.0 and 0.29.0.

Its requests are in `core_requests`, whose functions are part of this interface too.
vLLM's Python interfaces changed between 0.13 and 0.33. Only this package uses them, and a comment names the version
wherever versions differ. Importing this module imports vLLM, which takes 8 to 11 s: import it inside functions, after
the port is bound.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from handler.engine.queue_limits import QueueLimits
from handler.engine.vllm_api.core import engine_metrics
from handler.engine.vllm_api.core.core_requests import DIRECT
from handler.engine.vllm_api.core.core_requests import add_request as add_request
from handler.engine.vllm_api.core.core_requests import as_endpoint_error as as_endpoint_error
from handler.engine.vllm_api.core.core_requests import sampling_params as sampling_params
from handler.engine.vllm_api.core.queued_requests import QueuedRequests
from handler.engine.vllm_api.processes.core_processes import engine_pids
from handler.engine.vllm_api.processes.core_processes import exit_statuses as exit_statuses
from handler.errors import EndpointError

if DIRECT:
    from handler.engine.vllm_api.tokens import token_path, version_differences

try:
    # With the same arguments on 0.16.0, 0.24.0 and 0.32.0.
    from vllm.renderers.hf import resolve_chat_template, resolve_chat_template_content_format
except ImportError:  # 0.13.0
    from vllm.entrypoints.chat_utils import resolve_chat_template_content_format
    from vllm.entrypoints.chat_utils import resolve_hf_chat_template as resolve_chat_template

# vLLM's own defaults on the OpenAI routes, for values that neither the request nor generation_config.json sets
# (vllm/entrypoints/openai/chat_completion/protocol.py).
SAMPLING_DEFAULTS: Mapping[str, float] = {
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
}

# 0.16.0 and later give a request an internal id, and abort it by that id. 0.13.0 uses the id of the caller.
ABORT: Mapping[str, bool] = {"internal": True} if "internal" in inspect.signature(AsyncLLM.abort).parameters else {}


def build_engine(
    arguments: AsyncEngineArgs, limits: Callable[[int], QueueLimits], *, further: bool = False
) -> AsyncLLM:
    """Starts an engine, whose core is a process of its own. Call on the loop that will serve it.

    :param limits: what the core may have at the same time, for a number of slots.
    :param further: this process has other engines already, whose metrics must be kept.
    :raises Exception: any error that vLLM raises when it cannot start. The core has printed the reason.
    """
    if further:
        engine, registry = engine_metrics.with_own_registry(lambda: AsyncLLM.from_engine_args(arguments))
        engine.metrics_registry = registry
    else:
        engine = AsyncLLM.from_engine_args(arguments)
    queued = engine.queued_requests = QueuedRequests(engine, limits(max_num_seqs(engine)))
    if DIRECT and version_differences.supports_path(engine):
        token_path.TokenPath.install(engine, queued.queue, queued.process_outputs)
    return engine


def metrics_registry(engine: AsyncLLM) -> CollectorRegistry | None:
    """The registry with vLLM's metrics of a further engine. None: they are in prometheus_client's global registry."""
    return getattr(engine, "metrics_registry", None)


def max_model_len(engine: AsyncLLM) -> int:
    return int(engine.model_config.max_model_len)


def max_num_seqs(engine: AsyncLLM) -> int:
    """How many sequences are decoded at the same time, by all cores together."""
    config = engine.vllm_config
    return int(config.scheduler_config.max_num_seqs) * int(config.parallel_config.data_parallel_size)


def caches_prefixes(engine: AsyncLLM) -> bool:
    """Whether prefix caching is on."""
    return bool(engine.vllm_config.cache_config.enable_prefix_caching)


def takes_adapters(engine: AsyncLLM) -> bool:
    """Whether the engine was started with LoRA."""
    return engine.vllm_config.lora_config is not None


def limit_length(engine: AsyncLLM, sequence: int) -> None:
    """Limits lengths in vLLM's own checks to that of the compiled graphs. vLLM's serving classes use these checks.

    It changes this process's copy of the configuration only; the core has its own. Call before the serving classes are
    made.

    :param sequence: the longest sequence of prompt and output.
    """
    engine.model_config.max_model_len = min(sequence, max_model_len(engine))


def vocab_size(engine: AsyncLLM) -> int:
    return int(engine.model_config.get_vocab_size())


def allowed_media_domains(engine: AsyncLLM) -> tuple[str, ...]:
    """The hosts from which media may be fetched."""
    return tuple(engine.model_config.allowed_media_domains or ())


def sampling_defaults(engine: AsyncLLM) -> dict[str, float]:
    """The default sampling parameters: the model's own (generation_config.json), else vLLM's."""
    return {**SAMPLING_DEFAULTS, **engine.model_config.get_diff_sampling_param()}


def default_max_tokens(engine: AsyncLLM) -> int | None:
    """The number of output tokens that the model's generation_config.json sets, if it does."""
    cap = engine.model_config.get_diff_sampling_param().get("max_tokens")
    return None if cap is None else int(cap)


async def abort(engine: AsyncLLM, internal_id: str) -> None:
    await engine.abort(internal_id, **ABORT)


def unfinished(engine: AsyncLLM) -> int:
    """How many requests hold a slot or wait for one."""
    return int(engine.output_processor.get_num_unfinished_requests()) + int(engine.queued_requests.queue.waiting)


async def probe(engine: AsyncLLM) -> None:
    """A round trip through the core's busy loop, which answers between two steps. The answer proves that it runs."""
    await engine.engine_core.is_sleeping_async()


def is_dead(engine: AsyncLLM) -> bool:
    return bool(engine.errored)


def core_pids(engine: AsyncLLM) -> tuple[int, ...]:
    """The process ids of the engine's cores and of their workers."""
    return engine_pids(engine)


def shutdown(engine: AsyncLLM) -> None:
    guard = getattr(engine, "grammar_guard", None)
    if guard is not None:
        guard.close()
    engine.shutdown()


def fail_all(engine: AsyncLLM, error: EndpointError) -> None:
    """Ends every request with the same error. Call on the loop."""
    for state in list(engine.output_processor.request_states.values()):
        if state.queue is not None:
            state.queue.put(error)
    engine.queued_requests.queue.fail(error)


def own_tokenizer(engine: AsyncLLM) -> Any:
    """A copy of the tokenizer for this software's threads, which neither cuts nor pads.

    vLLM changes the truncation of its own while it works, which then raises "Already borrowed" in other threads. Its
    warm-up leaves one behind.
    """
    tokenizer = copy.deepcopy(engine.tokenizer)
    if type(tokenizer).__name__.startswith("TokenizerPool"):
        # 0.24.0 and later: each call borrows one of several copies, which takes a seventh of the time of a template.
        tokenizer.__class__ = type(tokenizer).__base__
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        backend.no_truncation()
        backend.no_padding()
    return tokenizer


def longest_token(tokenizer: Any) -> int:
    """The length of the vocabulary's longest token, in characters, or in bytes for a vocabulary of bytes."""
    return max(map(len, tokenizer.get_vocab()))


def chat_template(engine: AsyncLLM, tokenizer: Any, configured: str | None = None) -> str | None:
    """The chat template that vLLM would use: the configured one, else the processor's, the tokenizer's, or vLLM's
    fallback for the model type.
    """
    template: str | None = resolve_chat_template(tokenizer, configured, None, model_config=engine.model_config)
    return template


def content_as_parts(engine: AsyncLLM, tokenizer: Any, template: str | None, content_format: str = "auto") -> bool:
    """Whether the template expects a message's content as a list of parts rather than a string."""
    config = engine.model_config
    found = resolve_chat_template_content_format(template, None, content_format, tokenizer, model_config=config)
    return bool(found == "openai")
