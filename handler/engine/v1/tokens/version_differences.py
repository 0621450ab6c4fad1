"""What the token path uses of vLLM where versions differ. Seen on 0.16.0, 0.24.0, 0.29.0 and 0.32.0.

The fields of `EngineCoreOutput` and `EngineCoreOutputs` are looked up once, here, and not for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.engine.output_processor import OutputProcessor, RequestState
from vllm.v1.metrics.stats import IterationStats

# 0.24.0 and later: what a prefill found in the caches is an object. 0.16.0: a number.
PREFILL_STATS: Final = "prefill_stats" in EngineCoreOutput.__struct_fields__
# 0.29.0 and later: the hashes of media that the core has lost. The client must send them again.
CACHE_MISSES: Final = "mm_cache_miss_hashes" in EngineCoreOutput.__struct_fields__
# 0.32.0: the weights that a step was computed with.
WEIGHT_VERSION: Final = "weight_version" in EngineCoreOutputs.__struct_fields__
# 0.32.0: the tokens of a step behind the one that completes a stop string are removed from the output.
TRIM: Final[Callable[[Any, Any, int], None] | None] = getattr(OutputProcessor, "_trim_surplus_tokens", None)


def supports_path(llm: Any) -> bool:
    """Whether nothing but tokens, statistics and results of calls comes from the cores of this engine.

    With these settings (0.24.0, 0.29.0) they also send notifications, which vLLM's own task handles.
    """
    parallel = llm.vllm_config.parallel_config
    return not any(getattr(parallel, name, False) for name in ("enable_elastic_ep", "enable_fault_tolerance"))


def step_tokens(stats: IterationStats) -> int:
    """The tokens that were computed. 0.24.0 and later: without those of prompts that were cached."""
    prompts = stats.prompt_token_stats.computed if PREFILL_STATS else stats.num_prompt_tokens
    return int(prompts + stats.num_generation_tokens)


def mm_cache_stats(llm: Any) -> Callable[[], Any]:
    """The function for the statistics of the multimodal cache. 0.24.0 and later: the renderer has the cache."""
    function: Callable[[], Any] | None = getattr(getattr(llm, "renderer", None), "stat_mm_cache", None)
    return function or llm.input_processor.stat_mm_cache


def keep_end_token(llm: Any) -> None:
    """Asks the tokenizer once for its end token, which vLLM does for each request. 0.16.0: the preprocessor asks."""
    owners: tuple[Any, ...] = (getattr(llm, "renderer", None), getattr(llm.input_processor, "input_preprocessor", None))
    for owner in owners:
        if hasattr(owner, "get_eos_token_id"):
            token = owner.get_eos_token_id()
            owner.get_eos_token_id = lambda token=token: token


def end_prefill(state: RequestState, output: EngineCoreOutput) -> None:
    """Updates a request's state at its first token, as `OutputProcessor.process_outputs` does."""
    state.is_prefilling = False
    if not PREFILL_STATS:
        state.num_cached_tokens = output.num_cached_tokens
    elif output.prefill_stats is not None:
        state.num_cached_tokens = output.prefill_stats.num_cached_tokens


def update_text(state: RequestState, output: EngineCoreOutput, stopped: bool) -> str | None:
    """Gives a step's tokens to the detokenizer. Returns the stop string that they complete."""
    before = state.detokenizer.num_output_tokens() if TRIM else 0
    stop: str | None = state.detokenizer.update(output.new_token_ids, stopped)
    if stop and TRIM:
        TRIM(state, output, before)
    return stop


def step_arguments(message: EngineCoreOutputs) -> Mapping[str, Any]:
    """What `OutputProcessor.process_outputs` gets of a message beside the outputs."""
    return {"weight_version": message.weight_version} if WEIGHT_VERSION else {}


def drop_missing_media(llm: Any, outputs: Sequence[EngineCoreOutput]) -> None:
    """Removes media from the client's cache that the core has lost."""
    if CACHE_MISSES and (cache := llm.renderer.mm_processor_cache) is not None:
        for output in outputs:
            for name in output.mm_cache_miss_hashes or ():
                cache.invalidate(name)
