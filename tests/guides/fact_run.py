"""Runs `check` and `plan` with the settings of a fact, as a user types them: an environment file and a command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from handler.engine.generation.generation import Sampling
from handler.engine.generation.sampling_check import check, check_document
from handler.errors import ClientError
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.neuron_config.real_class import MODULE
from handler.neuron.sampling_limits import sampling_limits
from tests.guides.guide_facts import Fact
from tests.model_packaging.command import run

GB = 1_000_000_000
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
SHAPE_405B = {"hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128, "intermediate_size": 53248}


def _of(kind: str, architecture: str, **more: Any) -> dict[str, Any]:
    return {"model_type": kind, "architectures": [architecture], **more}


# Directory below models/ -> changes to config.json, size of the weights in bytes, and the names of tensors.
MODELS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "llama": ({}, 16 * GB, ("lm_head.weight",)),
    "small": ({"hidden_size": 2048, "num_hidden_layers": 16}, 2 * GB, ("lm_head.weight",)),
    "large": ({"num_hidden_layers": 80}, 140 * GB, ("lm_head.weight",)),
    "405b": (SHAPE_405B, 810 * GB, ()),
    "eagle-405b": ({**SHAPE_405B, "num_hidden_layers": 1}, 8 * GB, ("fc.weight", "lm_head.weight")),
    "tied": ({"tie_word_embeddings": True}, 16 * GB, ()),
    "mistral": (_of("mistral", "MistralForCausalLM"), 14 * GB, ()),
    "mixtral": (_of("mixtral", "MixtralForCausalLM", num_local_experts=8, num_experts_per_tok=2), 90 * GB, ()),
    "qwen2": (_of("qwen2", "Qwen2ForCausalLM"), 2 * GB, ()),
    "qwen3": (_of("qwen3", "Qwen3ForCausalLM"), 16 * GB, ()),
    "mamba": (_of("mamba", "MambaForCausalLM"), 2 * GB, ()),
    "llama4": (_of("llama4", "Llama4ForConditionalGeneration", text_config=LLAMA), 200 * GB, ()),
    "mllama": (_of("mllama", "MllamaForConditionalGeneration", text_config=LLAMA), 20 * GB, ()),
    "words": ({"vocab_size": 32000}, 2 * GB, ()),
    "eagle": ({"num_hidden_layers": 1}, GB, ("fc.weight", "lm_head.weight")),
    "is-eagle": ({"num_hidden_layers": 1, "is_eagle": True}, GB, ("fc.weight", "lm_head.weight")),
    "headless": ({"num_hidden_layers": 1}, GB, ("fc.weight",)),
    "fp8": ({"quantization_config": {"quant_method": "fp8"}}, 8 * GB, ()),
}
OVERRIDES = ("additional_config.override_neuron_config", "override_neuron_config")


def write_models(directory: Path) -> None:
    """Writes what `check` reads of each model: config.json and the index of the weights."""
    for name, (changes, size, tensors) in MODELS.items():
        folder = directory / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**LLAMA, **changes}))
        index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(tensors, "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def text(value: object) -> str:
    """A value as an environment has it."""
    return value if isinstance(value, str) else json.dumps(value)


def environment(fact: Fact) -> dict[str, str]:
    named = {"ENDPOINT_LINE": fact.line, "ENDPOINT_INSTANCE": fact.instance}
    return {name: value for name, value in named.items() if value} | {
        name: text(value) for name, value in (fact.env or {}).items()
    }


class FactRun:
    """The commands that a user would run with the settings of a fact."""

    def __init__(self, fact: Fact, directory: Path) -> None:
        self._file = directory / "endpoint.env"
        lines = (f"{name}={value}\n" for name, value in environment(fact).items())
        self._file.write_text("".join(lines).replace("models/", f"{directory}/models/"))
        self._model = str(directory / fact.model) if fact.model.startswith("models/") else fact.model

    def run(self, command: str) -> tuple[int, Any]:
        """The exit status and the printed JSON."""
        words = [command, "--json", "--env-file", str(self._file), self._model]
        result = run(*words)
        return result.exit_code, json.loads(result.stdout)

    def plan(self) -> EnginePlan:
        status, document = self.run("plan")
        assert status == 0, document
        return EnginePlan(document["line"], document["engine_args"], document["env"])

    def neuron_config(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """The keys that NxD Inference's class is built with. A module of that name records them."""
        taken: list[dict[str, Any]] = []

        class NeuronConfig:
            def __init__(self, **keys: Any) -> None:
                taken.append(keys)

        module = ModuleType(MODULE)
        module.NeuronConfig = NeuronConfig  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, MODULE, module)
        self.run("check")
        assert taken, "the class was not built"
        return taken[-1]


def value_at(plan: EnginePlan, path: str) -> object:
    """An engine argument, or what is in it. `...` if there is none."""
    if path.partition(".")[0] == "override":
        rest = path.partition(".")[2]
        return next((value_at(plan, f"{place}.{rest}") for place in OVERRIDES if has(plan, place)), ...)
    found: Any = plan.engine_args
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return ...
        found = found[part]
    return found


def has(plan: EnginePlan, path: str) -> bool:
    return value_at(plan, path) is not ...


def rejected_field(plan: EnginePlan, body: Mapping[str, Any]) -> str:
    """The sampling field that the endpoint of this plan answers with a 400; "" if it accepts the body."""
    limits = sampling_limits(plan)
    plain = {name: value for name, value in body.items() if name in Sampling.__slots__ and name != "logprobs"}
    try:
        check(Sampling(**plain), limits)
        check_document(body, limits)
    except ClientError as error:
        return str(error.param)
    return ""
