"""The gate that every prompt of every path passes on its way to the engine. Seen on vLLM 0.16.0, 0.24.0 and 0.29.0.

vLLM makes the message to its core in `InputProcessor.process_inputs`: for its serving classes, for a beam search and
for this software. So it is wrapped there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM

from handler.engine.engine_client.input_gate import InputGate


def install(llm: AsyncLLM, gate: InputGate, require_tried: Callable[[object], None]) -> None:
    """Puts the gate in front of an engine.

    :param require_tried: raises if the parameters have a grammar that has not been tried.
    """
    processor = llm.input_processor
    process = processor.process_inputs

    def process_inputs(request_id: str, prompt: Any, params: Any, *arguments: Any, **named: Any) -> Any:
        require_tried(params)
        request = process(request_id, prompt, params, *arguments, **named)
        sampling = request.sampling_params
        whole = gate.check(request.prompt_token_ids or (), request.cache_salt or "", sampling)
        if whole and sampling.prompt_logprobs is None:
            sampling.flat_logprobs = True  # lists of numbers, which the garbage collector does not walk
        return request

    processor.process_inputs = process_inputs
