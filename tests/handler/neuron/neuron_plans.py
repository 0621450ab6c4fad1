"""Helpers that make a plan and return its findings. Settings are typed as an environment has them, and are loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from handler.config.config_findings import config_findings
from handler.config.finding import Finding, Severity
from handler.config.loading.config_loader import load
from handler.errors import SettingError
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import EnginePlan, PlanOutcome
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.planning.examination import rejected_settings
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


def typed(settings: Mapping[str, Any]) -> dict[str, str]:
    """Fields as variables. An engine argument is vLLM's variable, and a Neuron variable is itself."""
    environ: dict[str, Any] = {}
    for field, value in settings.items():
        if field == "engine_args":
            environ |= {f"SM_VLLM_{name.upper()}": given for name, given in value.items()}
        else:
            environ |= value if field == "neuron_env" else {f"ENDPOINT_{field.upper()}": value}
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in environ.items()
        if value is not None
    }


def untyped(setting: str) -> str:
    """The field or the key that a finding names, without the prefix of the variable."""
    head, dot, key = setting.partition(".")
    head = re.sub("^(ENDPOINT|SM_VLLM)_(.*)", lambda found: found[2].lower(), head)
    return key if head == "neuron_config" and key else head + dot + key


def no_files(location: str) -> bytes | None:
    return None


def outcome(
    line: str,
    *,
    facts: ModelFacts | None = None,
    instance: InstanceType | None = None,
    draft_model: ModelFacts | None = None,
    installed: Mapping[str, str] | None = None,
    **settings: Any,
) -> PlanOutcome:
    """The outcome of settings that went through the loader. Findings name fields and keys."""
    try:
        config = load(typed({"model": "/models/llama", **settings}), fetch=no_files)
    except SettingError as error:
        found = PlanOutcome(None, rejected_settings(error).findings)
    else:
        made = make_plan(replace(config, line=line), facts, instance, draft_model=draft_model, installed=installed)
        found = replace(made, findings=(*config_findings(config), *made.findings))
    return replace(found, findings=tuple(replace(one, setting=untyped(one.setting)) for one in found.findings))


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
