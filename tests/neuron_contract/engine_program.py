"""Runs in a process of its own: an engine, and requests to it. Arguments: a JSON job, and the file for its answer.

job: {"engine": {vLLM's arguments}, "batches": [[request, ...], ...], "configure": [{arguments, "target"}, ...]}
request: {"prompt": text or ids, "choices": [text, ...] for a grammar, and vLLM's sampling parameters}
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def answer_to(engine: Any, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    prompts, sampling = [], []
    for request in batch:
        request = dict(request)
        if "logit_bias" in request:
            request["logit_bias"] = {int(token): bias for token, bias in request["logit_bias"].items()}
        prompt, choices = request.pop("prompt"), request.pop("choices", None)
        if choices:
            request["structured_outputs"] = StructuredOutputsParams(choice=choices)
        prompts.append({"prompt_token_ids": prompt} if isinstance(prompt, list) else prompt)
        sampling.append(SamplingParams(**request))
    try:
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
    except Exception as error:  # what a user of the engine would see is what is recorded
        return [{"error": type(error).__name__, "message": str(error)}]
    return [
        {
            "ids": list(o.outputs[0].token_ids),
            "text": o.outputs[0].text,
            "finish": o.outputs[0].finish_reason,
            "logprobs": bool(o.outputs[0].logprobs),
        }
        for o in outputs
    ]


def configured(arguments: dict[str, Any]) -> dict[str, Any]:
    """What vLLM makes of engine arguments, without an engine. `target` is the platform that they are for."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    target = arguments.pop("target", None)
    if target is not None:
        os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = target
    try:
        return values(EngineArgs(**arguments).create_engine_config(UsageContext.OPENAI_API_SERVER))
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def values(config: Any) -> dict[str, Any]:
    return {
        "executor": config.parallel_config.distributed_executor_backend,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "chunked_prefill": config.scheduler_config.enable_chunked_prefill,
        "scheduler": str(config.scheduler_config.scheduler_cls),
        "block_size": config.cache_config.block_size,
        "blocks": config.cache_config.num_gpu_blocks_override,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "worker": config.parallel_config.worker_cls,
    }


def main() -> None:
    from handler.engine.engine_client.model_inspection import inspect_here

    inspect_here()  # as our engine does: else vLLM is imported once more for it
    job = json.loads(sys.argv[1])
    answer: dict[str, Any] = {"configured": [configured(arguments) for arguments in job.get("configure", [])]}
    if "engine" in job:
        from vllm import LLM

        try:
            engine = LLM(**job["engine"])
        except Exception as error:
            answer |= {"error": type(error).__name__, "message": str(error)}
        else:
            answer |= {"values": values(engine.llm_engine.vllm_config)}
            answer |= {"batches": [answer_to(engine, batch) for batch in job.get("batches", [])]}
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
