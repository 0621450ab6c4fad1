"""What the five guides ask for and used to be ignored, typed as a user types it: an environment, through `check`.

docs/guides.md lists every fact of the guides with the test that holds it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from model_packaging.cli import main

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
GB = 1_000_000_000
# Name -> changes to config.json, size of the weights in bytes, and the names of tensors.
MODELS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "llama": ({}, 16 * GB, ("lm_head.weight",)),
    "small": ({"hidden_size": 2048}, 2 * GB, ("lm_head.weight",)),
    "large": ({"num_hidden_layers": 80}, 140 * GB, ("lm_head.weight",)),
    "405b": ({"hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128}, 810 * GB, ()),
    "qwen2": ({"model_type": "qwen2"}, 2 * GB, ()),
    "words": ({"vocab_size": 32000}, 2 * GB, ()),
    "eagle": ({"num_hidden_layers": 1}, GB, ("fc.weight", "lm_head.weight")),
    "is_eagle": ({"num_hidden_layers": 1, "is_eagle": True}, GB, ("fc.weight", "lm_head.weight")),
    "headless": ({"num_hidden_layers": 1}, GB, ("fc.weight",)),
    "fp8": ({"quantization_config": {"quant_method": "fp8"}}, 8 * GB, ()),
    "mllama": ({"model_type": "mllama", "architectures": ["MllamaForConditionalGeneration"]}, 20 * GB, ()),
}
TRN1, TRN2, CLUSTER = "ml.trn1.32xlarge", "ml.trn2.48xlarge", "trn1.32xlarge"
NXDI, FORK, FORK_072 = "nxdi-0.16", "fork-0.9.1", "fork-0.7.2"
SHORT = {"SM_VLLM_MAX_MODEL_LEN": "2048", "SM_VLLM_MAX_NUM_SEQS": "1"}


def draft(name: str, **more: str) -> dict[str, str]:
    return {"ENDPOINT_SPECULATIVE_MODEL": name, "ENDPOINT_NUM_SPECULATIVE_TOKENS": "5", **more}


def override(**keys: Any) -> dict[str, str]:
    return {"SM_VLLM_ADDITIONAL_CONFIG": json.dumps({"override_neuron_config": keys})}


def fork_override(**keys: Any) -> dict[str, str]:
    return {"SM_VLLM_OVERRIDE_NEURON_CONFIG": json.dumps(keys)}


EAGLE = {"ENDPOINT_SPECULATION": "eagle"}
TNX = {"VLLM_NEURON_FRAMEWORK": "transformers-neuronx"}
KEY = "SM_VLLM_ADDITIONAL_CONFIG.override_neuron_config"
DRAFT = "ENDPOINT_SPECULATIVE_MODEL"
NODES = {"ENDPOINT_NODES": "2", "SM_VLLM_TENSOR_PARALLEL_SIZE": "32", "NEURON_RANK_ID": "0", **SHORT}
KV_TRANSFER = {"SM_VLLM_KV_TRANSFER_CONFIG": json.dumps({"kv_role": "kv_producer"})}
Row = tuple[str, str, str, dict[str, str], str, str, str]

# Name -> line, instance, model, environment, code, severity and setting of the finding.
FOUND: dict[str, Row] = {
    "eagle-without-draft": (
        NXDI,
        TRN1,
        "llama",
        override(enable_eagle_speculation=True, speculation_length=5),
        "speculation-without-draft",
        "error",
        f"{KEY}.enable_eagle_speculation",
    ),
    "fused-without-draft": (
        NXDI,
        TRN1,
        "llama",
        {"ENDPOINT_FUSED_SPECULATION": "true"},
        "speculation-without-draft",
        "error",
        "ENDPOINT_FUSED_SPECULATION",
    ),
    "two-lengths": (
        NXDI,
        TRN1,
        "llama",
        draft("small") | override(speculation_length=6),
        "conflicting-settings",
        "error",
        f"{KEY}.speculation_length",
    ),
    "hidden-size": (NXDI, TRN1, "llama", draft("small", **EAGLE), "draft-hidden-size", "error", DRAFT),
    "vocabulary": (NXDI, TRN1, "llama", draft("words"), "draft-vocabulary", "error", DRAFT),
    "family": (NXDI, TRN1, "llama", draft("qwen2"), "draft-family", "error", DRAFT),
    "larger-draft": (NXDI, TRN1, "llama", draft("large"), "draft-larger", "warning", DRAFT),
    "token-tree": (
        NXDI,
        TRN1,
        "llama",
        draft("eagle", **EAGLE) | override(token_tree_config={"0": ["1"]}),
        "token-tree",
        "error",
        f"{KEY}.token_tree_config",
    ),
    "lm-head": (NXDI, TRN1, "llama", draft("headless", **EAGLE), "eagle-lm-head", "error", DRAFT),
    "draft-length": (
        FORK_072,
        TRN1,
        "llama",
        draft("small", SM_VLLM_SPECULATIVE_MAX_MODEL_LEN="64"),
        "draft-length",
        "error",
        "SM_VLLM_SPECULATIVE_MAX_MODEL_LEN",
    ),
    "block-manager": (
        FORK_072,
        TRN1,
        "llama",
        draft("small", SM_VLLM_USE_V2_BLOCK_MANAGER="false"),
        "block-manager",
        "error",
        "SM_VLLM_USE_V2_BLOCK_MANAGER",
    ),
    "tnx-model": (FORK_072, TRN1, "qwen2", TNX, "unsupported-model", "error", "MODEL"),
    "tnx-context-bucket": (
        FORK_072,
        TRN1,
        "llama",
        TNX | SHORT | {"NEURON_CONTEXT_LENGTH_BUCKETS": "128,4096"},
        "bucket-too-long",
        "error",
        "NEURON_CONTEXT_LENGTH_BUCKETS",
    ),
    "tnx-token-bucket": (
        FORK_072,
        TRN1,
        "llama",
        TNX | SHORT | {"NEURON_TOKEN_GEN_BUCKETS": "128"},
        "bucket-coverage",
        "error",
        "NEURON_TOKEN_GEN_BUCKETS",
    ),
    "tnx-key": (
        FORK_072,
        TRN1,
        "llama",
        TNX | fork_override(shard_over_sequnce=True),
        "unknown-neuron-key",
        "error",
        "SM_VLLM_OVERRIDE_NEURON_CONFIG.shard_over_sequnce",
    ),
    "fp8-checkpoint": (NXDI, TRN1, "fp8", {}, "quantized-checkpoint", "error", "MODEL"),
    "kv-transfer": (
        NXDI,
        TRN1,
        "llama",
        KV_TRANSFER,
        "unsupported-by-line",
        "error",
        "SM_VLLM_KV_TRANSFER_CONFIG",
    ),
    "disaggregation-address": (
        FORK,
        CLUSTER,
        "llama",
        {"ENDPOINT_DISAGGREGATION": "prefill"},
        "disaggregation-without-address",
        "error",
        "ENDPOINT_DISAGGREGATION",
    ),
    "disaggregation-hosted": (
        FORK,
        TRN1,
        "llama",
        {"ENDPOINT_DISAGGREGATION": "prefill"},
        "several-nodes",
        "error",
        "ENDPOINT_DISAGGREGATION",
    ),
    "mllama-on-the-plugin": (NXDI, TRN1, "mllama", SHORT, "unsupported-model", "error", "MODEL"),
    "tied-embeddings-unread": (NXDI, TRN1, "org/name", {}, "tied-embeddings", "info", "MODEL"),
    "lnc-1": (
        NXDI,
        TRN2,
        "llama",
        {"NEURON_LOGICAL_NC_CONFIG": "1"},
        "lnc-one",
        "info",
        "NEURON_LOGICAL_NC_CONFIG",
    ),
    "no-store": (NXDI, TRN1, "llama", {}, "artifacts-in-scratch", "info", "artifact_store"),
    "fork": (FORK, TRN1, "llama", {}, "line-not-served", "info", "ENDPOINT_LINE"),
    "optimum": ("", TRN1, "llama", {"VLLM_NEURON_FRAMEWORK": "optimum-neuron"}, "line-not-served", "info", "optimum"),
    "transformers-neuronx": ("", TRN1, "llama", TNX, "line-not-served", "info", "fork-0.7.2"),
    "framework-of-another-line": (
        NXDI,
        TRN1,
        "llama",
        TNX,
        "framework-not-in-line",
        "error",
        "VLLM_NEURON_FRAMEWORK",
    ),
}


def ran(command: str, directory: Path, line: str, instance: str, model: str, environ: dict[str, str]) -> Any:
    """The command's exit status and JSON. A draft model is the name of one of `MODELS`."""
    for name, (changes, size, tensors) in MODELS.items():
        folder = directory / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**LLAMA, **changes}))
        index = {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(tensors, "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    given = dict(environ)
    if DRAFT in environ:
        given[DRAFT] = str(directory / environ[DRAFT])
    given |= {"ENDPOINT_INSTANCE": instance} | ({"ENDPOINT_LINE": line} if line else {})
    file = directory / "endpoint.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    where = str(directory / model) if model in MODELS else model
    result = CliRunner().invoke(main, [command, "--json", "--env-file", str(file), where], catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("name", FOUND)
def test_a_fact_is_found_with_the_setting_and_a_fix(name: str, tmp_path: Path) -> None:
    line, instance, model, environ, code, severity, setting = FOUND[name]
    status, document = ran("check", tmp_path, line, instance, model, environ)
    (finding,) = [one for one in document["findings"] if one["code"] == code]
    assert finding["severity"] == severity
    assert finding["fix"]
    if line:
        assert finding["setting"] == setting
    else:
        assert setting in finding["why"], "the framework's variable chose the line"
    assert status == (1 if severity == "error" else 0), document["findings"]


@pytest.mark.parametrize("line", [NXDI, FORK])
@pytest.mark.parametrize("how", ["key", "config.json"])
def test_an_eagle_draft_needs_no_method(tmp_path: Path, line: str, how: str) -> None:
    """The fork's example turns EAGLE on in NeuronConfig. transformers-neuronx reads `is_eagle` of config.json."""
    keys = {"enable_eagle_speculation": True, "enable_fused_speculation": True}
    more = (override(**keys) if line == NXDI else fork_override(**keys)) if how == "key" else {}
    status, plan = ran("plan", tmp_path, line, TRN1, "llama", draft("eagle" if how == "key" else "is_eagle") | more)
    assert status == 0, plan
    args = plan["engine_args"]
    if line == NXDI:
        assert args["speculative_config"]["method"] == "eagle"
    else:
        assert args["override_neuron_config"]["enable_eagle_speculation"] is True


def test_the_length_of_neuron_config_is_the_number_of_tokens(tmp_path: Path) -> None:
    """The 405B tutorial has it there only."""
    environ = draft("eagle", **EAGLE) | override(speculation_length=6)
    del environ["ENDPOINT_NUM_SPECULATIVE_TOKENS"]
    status, plan = ran("plan", tmp_path, NXDI, TRN1, "llama", environ)
    assert status == 0, plan
    assert plan["engine_args"]["speculative_config"]["num_speculative_tokens"] == 6


def test_mllama_has_a_flat_override_on_the_fork(tmp_path: Path) -> None:
    environ = fork_override(sequence_parallel_enabled=False, skip_warmup=True) | SHORT
    status, plan = ran("plan", tmp_path, FORK, TRN1, "mllama", environ)
    assert status == 0, plan
    keys = plan["engine_args"]["override_neuron_config"]
    assert keys["sequence_parallel_enabled"] is False
    assert "text_neuron_config" not in keys


def test_adapters_of_the_override_may_be_an_object(tmp_path: Path) -> None:
    modules = {"lora_id_1": "/adapters/one", "lora_id_2": "/adapters/two"}
    environ = fork_override(lora_modules=modules) | {"SM_VLLM_ENABLE_LORA": "true", "SM_VLLM_MAX_LORAS": "2"}
    status, plan = ran("plan", tmp_path, FORK, TRN1, "llama", environ)
    assert status == 0, plan
    assert plan["engine_args"]["override_neuron_config"]["lora_modules"] == modules


def test_405b_fits_two_nodes_that_find_each_other(tmp_path: Path) -> None:
    alone = {name: value for name, value in NODES.items() if name != "ENDPOINT_NODES"}
    _, document = ran("check", tmp_path, FORK, CLUSTER, "405b", alone)
    assert "memory-does-not-fit" in {finding["code"] for finding in document["findings"]}
    status, document = ran("check", tmp_path, FORK, CLUSTER, "405b", NODES | {"MASTER_ADDR": "10.0.0.1"})
    assert status == 0, document["findings"]
    assert document["memory"]["tensor_parallel_size"] == 64


def test_check_says_that_a_line_is_for_plans_only(tmp_path: Path) -> None:
    ran("check", tmp_path, FORK, TRN1, "llama", {})
    words = ["check", "--env-file", str(tmp_path / "endpoint.env"), str(tmp_path / "llama")]
    result = CliRunner().invoke(main, words, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert "this container does not start the line" in result.output
    assert "Nothing here would keep it from starting" not in result.output
