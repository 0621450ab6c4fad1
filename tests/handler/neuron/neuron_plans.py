"""Helpers that make a plan and return its findings."""

from __future__ import annotations

from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import EnginePlan, PlanOutcome
from handler.neuron.hardware.instance_type import InstanceType
from handler.neuron.planning.planner import make_plan

TRN1 = InstanceType("trn1.32xlarge", "trn1", 16, 32, 128, 512, 512, (1,), True)
TRN2 = InstanceType("trn2.48xlarge", "trn2", 16, 128, 192, 2048, 1536, (2, 1), True)
# What every plan says, of a line whose vLLM has the argument.
GRAMMARS: dict[str, Any] = {"structured_outputs_config": {"backend": "xgrammar"}}
# What every plan of nxdi-0.16 says besides.
CHOSEN: dict[str, Any] = {**GRAMMARS, "async_scheduling": False}
INF2 = InstanceType("inf2.48xlarge", "inf2", 12, 24, 192, 768, 384, (1,), True)


def llama(**changes: Any) -> ModelFacts:
    """The shape of Llama 3.1 8B."""
    shape: dict[str, Any] = {
        "where": "/models/llama",
        "local": True,
        "config": {},
        "model_type": "llama",
        "architectures": ("LlamaForCausalLM",),
        "hidden_size": 4096,
        "layers": 32,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
        "tied_embeddings": False,
        "torch_dtype": "bfloat16",
        "parameters": 8_030_261_248,
        "weight_bytes": 16_060_522_496,
        "dtypes": {"BF16": 16_060_522_496},
    }
    return ModelFacts(**{**shape, **changes})


def outcome(
    line: str, *, facts: ModelFacts | None = None, instance: InstanceType | None = None, **settings: Any
) -> PlanOutcome:
    settings.setdefault("model", "/models/llama")
    return make_plan(EndpointConfig(**settings), facts, instance, line=line)


def planned(line: str, **settings: Any) -> EnginePlan:
    """The plan; fails with the errors where there is none."""
    result = outcome(line, **settings)
    assert result.plan is not None, result.errors
    return result.plan


def found(result: PlanOutcome, code: str) -> Finding:
    """The one finding of a code."""
    matching = [finding for finding in result.findings if finding.code == code]
    assert len(matching) == 1, (code, result.findings)
    return matching[0]


def warnings(result: PlanOutcome) -> list[str]:
    return [finding.code for finding in result.findings if finding.severity is Severity.WARNING]


def completed(result: PlanOutcome) -> set[str]:
    """What the plan chose for the user, by name."""
    return {finding.setting for finding in result.findings if finding.code == "completed"}


def starts(plan: EnginePlan) -> None:
    """The facts of a start on vLLM 0.16 with plugin 0.5, asserted of a plan (docs: platform.py, model_loader)."""
    args = plan.engine_args
    assert isinstance(args["max_model_len"], int)
    assert isinstance(args["max_num_seqs"], int)
    assert args["max_num_seqs"] >= 1
    assert "quantization" not in args
    assert args["enable_prefix_caching"] in (True, False), "left out, vLLM turns it on"
    if args["enable_prefix_caching"]:
        assert isinstance(args["block_size"], int)
        needed = -(-args["max_model_len"] // args["block_size"]) * args["max_num_seqs"]
        assert isinstance(args["num_gpu_blocks_override"], int)
        assert args["num_gpu_blocks_override"] >= needed
    additional = args.get("additional_config") or {}
    assert isinstance(additional, dict)
    assert "override-neuron-config" not in additional
