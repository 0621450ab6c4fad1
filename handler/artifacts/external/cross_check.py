"""A saved configuration against what is asked for. The plugin loads `NEURON_COMPILED_ARTIFACTS` as it stands and
ignores the settings (vllm-project/vllm-neuron, worker/neuronx_distributed_model_loader.py), so a difference that nobody
names shows as wrong limits, failed requests or wrong answers.

Whether a difference stops the start or leads to a compile is the caller's policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handler.artifacts.external.requested_config import asked_for, text_override, vision_override
from handler.artifacts.identity.canonical_json import normal
from handler.config.finding import Finding, Severity
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan

MISSING = object()
# Keys whose saved value says where something was when it was compiled.
PLACES = frozenset({"quantized_checkpoints_path", "lora_config", "lora_ckpt_json", "skip_warmup"})
DTYPES = {"half": "float16", "float": "float32"}
# What of config.json must be the same for the graph to fit the weights.
SHAPE = (
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "num_local_experts",
    "num_experts",
    "tie_word_embeddings",
)


def cross_check(
    saved: Mapping[str, Json],
    plan: EnginePlan,
    *,
    lnc: int | None = None,
    model_config: Mapping[str, Json] | None = None,
) -> tuple[Finding, ...]:
    """Compares `neuron_config.json` with a plan: an ERROR for each field that differs, naming both values.

    :param saved: the file as JSON; of a multimodal model with `text_config` and `vision_config`.
    :param lnc: the logical-core configuration of this machine.
    :param model_config: config.json of the model to be served, where it is at hand.
    """
    config = _part(saved, "text_config")
    if config is None:
        return (_unreadable(),)
    findings = [
        _finding(setting, name, config.get(name), asked)
        for name, setting, asked in asked_for(plan, lnc)
        if name not in PLACES and not _same(name, config.get(name, MISSING), asked)
    ]
    vision = vision_override(plan)
    saved_vision = _part(saved, "vision_config") or {}
    findings += [
        _finding(f"vision_neuron_config.{name}", name, saved_vision.get(name), asked)
        for name, asked in vision.items()
        if name not in PLACES and not _same(name, saved_vision.get(name, MISSING), asked)
    ]
    findings += _batching(config, plan)
    findings += _sampling(config, plan)
    findings += _shape(saved, model_config or {})
    return tuple(findings)


def _part(saved: Mapping[str, Json], part: str) -> Mapping[str, Json] | None:
    """The NeuronConfig in a saved configuration: at the top, or one level down for a multimodal model."""
    inner = saved.get(part)
    for holder in (inner if isinstance(inner, dict) else {}, saved):
        config = holder.get("neuron_config")
        if isinstance(config, dict):
            return config
    return None


def _batching(config: Mapping[str, Json], plan: EnginePlan) -> Iterator[Finding]:
    """Sequences decoded at once: `max_num_seqs` is `batch_size`, except with chunked prefill, where that is 1."""
    asked = plan.engine_args.get("max_num_seqs")
    if (
        not isinstance(asked, int)
        or "batch_size" in text_override(plan)
        or plan.engine_args.get("enable_chunked_prefill")
    ):
        return
    if config.get("batch_size") != asked:
        yield _finding("max_num_seqs", "batch_size", config.get("batch_size"), asked)


def _sampling(config: Mapping[str, Json], plan: EnginePlan) -> Iterator[Finding]:
    """On the device unless the override says null; the override's own keys must be the saved ones."""
    override = text_override(plan)
    asked = override.get("on_device_sampling_config", {})
    saved = config.get("on_device_sampling_config")
    setting = "override_neuron_config.on_device_sampling_config"
    if (asked is None) != (saved is None):
        places = {True: "on the CPU", False: "on the device"}
        yield _finding(setting, "on_device_sampling_config", places[saved is None], places[asked is None])
    elif isinstance(asked, dict) and isinstance(saved, dict):
        for name, value in asked.items():
            if not _same(name, saved.get(name, MISSING), value):
                yield _finding(f"{setting}.{name}", name, saved.get(name), value)


def _shape(saved: Mapping[str, Json], model_config: Mapping[str, Json]) -> Iterator[Finding]:
    saved_text, model_text = _text(saved), _text(model_config)
    for name in SHAPE:
        if name in saved_text and name in model_text and not _same(name, saved_text[name], model_text[name]):
            yield _finding("ENDPOINT_MODEL", name, saved_text[name], model_text[name])


def _text(config: Mapping[str, Json]) -> Mapping[str, Json]:
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _same(name: str, saved: object, asked: Json) -> bool:
    """A nested configuration has to hold what is asked; it may hold more, the defaults that NxDI filled in."""
    if saved is MISSING:
        return asked is None or asked is False
    if isinstance(asked, dict) and isinstance(saved, dict):
        return all(_same(key, saved.get(key, MISSING), value) for key, value in asked.items())
    if name.endswith("dtype") and isinstance(saved, str) and isinstance(asked, str):
        return _dtype(saved) == _dtype(asked)
    found, wanted = normal(saved), normal(asked)
    if name == "pa_num_blocks" and isinstance(found, int) and isinstance(wanted, int):
        return found in {wanted, wanted + 1}  # the plugin adds vLLM's null block
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def _dtype(name: str) -> str:
    short = name.removeprefix("torch.")
    return DTYPES.get(short, short)


def _finding(setting: str, name: str, saved: object, asked: object) -> Finding:
    return Finding(
        code=f"artifacts-differ-{name.replace('_', '-')}",
        severity=Severity.ERROR,
        setting=setting,
        why=f"the compiled artifacts have {name} = {_shown(saved)}, and {_shown(asked)} is asked for; the plugin loads "
        "them as they are and ignores the setting",
        fix=f"Set it to {_shown(saved)}, or compile again.",
    )


def _unreadable() -> Finding:
    return Finding(
        code="artifacts-without-neuron-config",
        severity=Severity.ERROR,
        setting="NEURON_COMPILED_ARTIFACTS",
        why="neuron_config.json has no 'neuron_config', so it is not known what was compiled",
        fix="Compile again, or name the directory that the compile wrote.",
    )


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)[:120]
