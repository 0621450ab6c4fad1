"""Changes that break the product. Each must make a test fail: those that once did not, and some like them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDES = "tests/guides/test_guide_facts.py"
LOADING = "tests/handler/startup/test_external_artifacts_loading.py"
PLANS = "tests/handler/neuron/lines"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one file.

    :ivar old: the text to replace, which occurs once in the file.
    :ivar tests: the files or folders of tests of which one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = (GUIDES,)


CONTEXT = "handler/neuron/checks/check_context.py"
MUTATIONS = (
    Mutation("default of ctx_batch_size", CONTEXT, '"ctx_batch_size": 1,', '"ctx_batch_size": 2,'),
    Mutation("default of padding_side", CONTEXT, '"padding_side": "right",', '"padding_side": "left",'),
    Mutation("default of quantized", CONTEXT, '"quantized": False,', '"quantized": True,'),
    Mutation(
        "bfloat16 of the MLP kernel",
        "handler/neuron/checks/graph.py",
        'BFLOAT16_KERNELS: Final = ("qkv_kernel_enabled", "mlp_kernel_enabled")',
        'BFLOAT16_KERNELS: Final = ("qkv_kernel_enabled",)',
    ),
    Mutation(
        "optimum on Trn2",
        "handler/neuron/lines/optimum_neuron.py",
        '("inf2", "trn1"), (2, 26)',
        '("inf2", "trn1", "trn2"), (2, 26)',
    ),
    Mutation(
        "transformers-neuronx on Trn2",
        "handler/neuron/lines/fork.py",
        '("inf2", "trn1"),\n    (2, 24)',
        '("inf2", "trn1", "trn2"),\n    (2, 24)',
    ),
    Mutation(
        "mllama on the plugin",
        "handler/neuron/checks/start_values.py",
        'if kind == "mllama" and context.plugin:',
        'if kind == "no-model" and context.plugin:',
    ),
    Mutation(
        "FP8 variables of kv_cache_quant",
        "handler/neuron/lines/nxd_keys.py",
        'cache = keys.get("kv_cache_quant") or keys.get("kv_quant_config") is not None',
        "cache = None",
    ),
    Mutation(
        "host sampling of transformers-neuronx",
        "handler/neuron/lines/fork.py",
        'draft.env["NEURON_ON_DEVICE_SAMPLING_DISABLED"] = "1"\n    spell_speculation',
        "pass\n    spell_speculation",
    ),
    Mutation(
        "host sampling of the fork",
        "handler/neuron/lines/fork.py",
        'draft.env["NEURON_ON_DEVICE_SAMPLING_DISABLED"] = "1"\n    _spell_cache',
        "pass\n    _spell_cache",
        (PLANS,),
    ),
    Mutation(
        "LNC of given artifacts",
        "handler/startup/external_artifacts_loading.py",
        "lnc=int(lnc) if lnc else None, model_config",
        "lnc=None, model_config",
        (LOADING,),
    ),
    Mutation(
        "model of given artifacts",
        "handler/startup/external_artifacts_loading.py",
        "model_config=model_config)",
        "model_config=None)",
        (LOADING,),
    ),
    Mutation(
        "adapters at run time",
        "handler/startup/adapter_loading.py",
        "adapters.fixed = AT_THE_START_ONLY",
        'adapters.fixed = ""',
        ("tests/handler/startup/test_adapter_loading.py",),
    ),
    Mutation(
        "the variable for adapters at run time",
        "handler/neuron/checks/model_checks.py",
        'in ("1", "true"):',
        'in ("never",):',
    ),
    Mutation(
        "hyphens of the user guide",
        "handler/config/config_findings.py",
        "if part in HYPHENATED and",
        "if part in () and",
    ),
    Mutation(
        "pipeline stages in the memory estimate",
        "handler/neuron/memory/rank_weights.py",
        "if stages < 2:",
        "if stages:",
    ),
    Mutation(
        "nodes in the memory estimate",
        "handler/neuron/memory/memory_shape.py",
        "config.nodes or 1, 1\n",
        "1, 1\n",
    ),
    Mutation(
        "a plugin that is missing",
        "handler/neuron/planning/platform_findings.py",
        "or not here or",
        "or here or",
        ("tests/handler/neuron/planning",),
    ),
    Mutation(
        "vLLM's own quantization",
        "handler/neuron/lines/nxd_keys.py",
        'if setting == "SM_VLLM_QUANTIZATION":',
        'if setting == "":',
    ),
    Mutation(
        "EAGLE keys without a draft",
        "handler/neuron/checks/draft_models.py",
        "setting is not None and alone:",
        "setting is not None:",
    ),
    Mutation(
        "static greedy sampling",
        "handler/neuron/sampling_limits.py",
        'greedy = sampling.get("do_sample") is not True or sampling.get("top_k", 1) == 1',
        "greedy = False",
    ),
    Mutation(
        "a line for plans only",
        "handler/neuron/checks/legacy_lines.py",
        "if not line.served:",
        "if False:",
    ),
    Mutation(
        "a warm-up beyond the plan's limits",
        "handler/engine/warmup.py",
        "kept = within(sampling, engine.limits)",
        "kept = sampling",
        ("tests/starts/test_starts.py",),
    ),
)
