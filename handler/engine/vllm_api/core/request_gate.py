"""The gate that every prompt of every path passes on its way to the engine. Seen on vLLM 0.16.0, 0.24.0 and 0.29.0.

vLLM makes the message to its core in `InputProcessor.process_inputs`: for its serving classes, for a beam search and
for this software. So it is wrapped there. What the message says is checked, and not what a body said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from handler.engine.generation.request_cost import COST, CostLimits, EngineInput, RequestCost, check_ids, check_values
from handler.engine.vllm_api.client_error import client_error
from handler.errors import InvalidField


@dataclass(frozen=True, slots=True)
class GateLimits:
    """:param prompt: the longest prompt in tokens. None: the context."""

    cost: CostLimits
    vocab_size: int
    prompt: int | None = None


def install(llm: AsyncLLM, limits: GateLimits, require_tried: Callable[[object], None]) -> None:
    """Puts the gate in front of an engine.

    :param require_tried: raises if the parameters have a grammar that has not been tried.
    """
    processor = llm.input_processor
    process = processor.process_inputs
    largest_id = limits.vocab_size - 1
    if llm.model_config.is_multimodal_model and llm.tokenizer is not None:
        # The placeholders of images are tokens of the tokenizer alone.
        largest_id = max(largest_id, int(llm.tokenizer.max_token_id))

    def process_inputs(request_id: str, prompt: Any, params: Any, *arguments: Any, **named: Any) -> Any:
        require_tried(params)
        request = process(request_id, prompt, params, *arguments, **named)
        ids = request.prompt_token_ids or ()
        if limits.prompt is not None and len(ids) > limits.prompt:
            message = f"The prompt has {len(ids)} tokens, over the context length of {limits.prompt} that was compiled."
            raise client_error(message)
        try:
            sampling = request.sampling_params
            if sampling is None:
                check_ids("prompt", ids, largest_id)
            else:
                whole = sampling.output_kind is RequestOutputKind.FINAL_ONLY
                given = EngineInput(ids, request.cache_salt or "", sampling, whole, limits.vocab_size)
                cost = COST.get() or RequestCost()
                check_values(given, largest_id)
                limits.cost.charge(given, cost)
                if whole and sampling.prompt_logprobs is None and not cost.searching:
                    sampling.flat_logprobs = True  # lists of numbers, which the garbage collector does not walk
        except InvalidField as error:
            raise client_error(f"{error.field}: {error.problem}", error.field) from None
        return request

    processor.process_inputs = process_inputs
