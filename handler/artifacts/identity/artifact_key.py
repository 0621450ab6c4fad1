"""The key of an artifact: a digest of everything that changes the compiled graph, and of nothing else.

There are two kinds of entries. A `graph` is what the compiler makes from a configuration and tensor shapes. `weights`
are shards of one checkpoint for one graph. `key_exclusions` lists what is not part of a key, and why.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from handler.artifacts.identity import key_exclusions
from handler.artifacts.identity.canonical_json import canonical, digest, normal
from handler.artifacts.identity.checkpoint_identity import CheckpointIdentity
from handler.json_value import Json, mapping
from handler.neuron.engine_plan import EnginePlan

# Increased when the meaning of a field changes, so that old entries are not found instead of misread.
KEY_SCHEMA = 1
# A field with a longer canonical form is replaced by its digest: manifests stay small, and miss reports readable.
LONGEST_CLEAR = 512
# The engine arguments that hold a NeuronConfig (see `EnginePlan`).
CONFIGS = ("override_neuron_config", "neuron_config", "vision_neuron_config")
# The variables that hold flags of the compiler.
FLAGS = ("NEURON_CC_FLAGS", "XLA_FLAGS")


@dataclass(frozen=True, slots=True)
class CompileTarget:
    """The hardware that a graph is compiled for.

    :param platform: the compiler's target (`inf2`, `trn1`, `trn2`, `trn3`), or `cpu`.
    :param lnc: physical NeuronCores per logical NeuronCore; None on a CPU.
    :param cpu_features: for `cpu`: `software_versions.cpu_features()`.
    """

    platform: str
    lnc: int | None = None
    cpu_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyInputs:
    """Everything that a key is computed from.

    :param versions: `software_versions.neuron_versions()` or `cpu_versions()`.
    :param environ: the process's variables. Those that the compiler reads are used.
    :param adapters: LoRA adapters by the name that requests use. The names are compiled in.
    :param quantized: the checkpoint at `quantized_checkpoints_path`, if there is one.
    """

    plan: EnginePlan
    versions: Mapping[str, str]
    target: CompileTarget
    checkpoint: CheckpointIdentity
    environ: Mapping[str, str] = field(default_factory=dict)
    adapters: Mapping[str, CheckpointIdentity] = field(default_factory=dict)
    draft: CheckpointIdentity | None = None
    quantized: CheckpointIdentity | None = None


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """`digest` is blake3 of the canonical `fields`, hex."""

    kind: str
    digest: str
    fields: Mapping[str, Json]


def graph_key(inputs: KeyInputs) -> ArtifactKey:
    """Returns the key of the compiled graph."""
    return _key("graph", _graph_fields(inputs))


def weights_key(inputs: KeyInputs) -> ArtifactKey:
    """Returns the key of the sharded weights that belong to the graph of `graph_key`."""
    content: dict[str, Json] = {"model": digest(inputs.checkpoint.content)}
    if inputs.adapters:
        content["adapters"] = {name: digest(adapter.content) for name, adapter in inputs.adapters.items()}
    if len(inputs.adapters) > 1:
        # NxD Inference shards them into slots in this order, and finds a name's slot by the order of the next start
        # (modules/lora_serving/lora_checkpoint.py).
        content["adapter_order"] = list(inputs.adapters)
    for name, other in _others(inputs).items():
        content[name] = digest(other.content)
    return _key("weights", {**_graph_fields(inputs), "content": content})


def settings_digest(inputs: KeyInputs) -> str:
    """Returns a digest of all settings, also of those that are not part of a key.

    They change no graph, but a start can fail because of them. Addresses and the choice of cores are left out: they
    differ between the instances of a fleet.
    """
    arguments = _without(inputs.plan.engine_args, key_exclusions.OF_INSTANCE)
    for name, value in arguments.items():
        if isinstance(value, dict):
            arguments[name] = _without(value, key_exclusions.OF_INSTANCE)
    environ = {name: value for name, value in inputs.environ.items() if name in key_exclusions.ENVIRONMENT}
    return digest([arguments, _without({**environ, **inputs.plan.env}, key_exclusions.OF_INSTANCE)])


def _key(kind: str, fields: dict[str, Json]) -> ArtifactKey:
    fields = {"schema": KEY_SCHEMA, "kind": kind, **fields}
    return ArtifactKey(kind, digest(fields), fields)


def _graph_fields(inputs: KeyInputs) -> dict[str, Json]:
    planned, excluded_names = inputs.plan.engine_args, set(key_exclusions.ENGINE_ARGS)
    if inputs.plan.line.startswith("native") and planned.get("num_gpu_blocks_override") is None:
        excluded_names.remove(key_exclusions.SIZES_NATIVE_CACHE)
    arguments = {
        name: normal(value) for name, value in planned.items() if name not in excluded_names and value is not None
    }
    fields: dict[str, Json] = {
        "line": inputs.plan.line,
        "versions": dict(inputs.versions),
        "platform": inputs.target.platform,
        "tensor_parallel_size": arguments.pop("tensor_parallel_size", 1),
        "pipeline_parallel_size": arguments.pop("pipeline_parallel_size", 1),
        "model": _clear(_without(inputs.checkpoint.config, key_exclusions.MODEL_CONFIG)),
        "tensors": inputs.checkpoint.shape,
        "env": _clear(_compile_environment(inputs.environ, inputs.plan.env)),
    }
    if inputs.target.lnc is not None:
        fields["lnc"] = inputs.target.lnc
    if inputs.target.cpu_features:
        fields["cpu"] = " ".join(inputs.target.cpu_features)
    for name, excluded in (
        ("speculative_config", key_exclusions.SPECULATIVE),
        ("kv_transfer_config", key_exclusions.TRANSFER),
        ("ec_transfer_config", key_exclusions.ENCODER_TRANSFER),
        ("kv_events_config", key_exclusions.EVENTS),
    ):
        value = arguments.get(name)
        if isinstance(value, dict):
            arguments[name] = _without(value, excluded)
    fields["neuron_config"] = _neuron_config(arguments, fields)
    fields["engine_args"] = _clear(arguments)
    if inputs.adapters:
        fields["adapters"] = {name: _shape_of(adapter) for name, adapter in inputs.adapters.items()}
    for name, other in _others(inputs).items():
        fields[name] = _shape_of(other)
    return fields


def _others(inputs: KeyInputs) -> dict[str, CheckpointIdentity]:
    others = {"draft": inputs.draft, "quantized": inputs.quantized}
    return {name: other for name, other in others.items() if other is not None}


def _neuron_config(arguments: dict[str, Json], fields: dict[str, Json]) -> dict[str, Json]:
    """Removes the NeuronConfig from the arguments and returns it without fields that repeat another (`tp_degree`).

    A null value is kept: `on_device_sampling_config = null` means sampling on the CPU.
    """
    merged: dict[str, Json] = {}
    additional = dict(mapping(arguments.pop("additional_config", None)))
    for place in (arguments, additional):
        for name in CONFIGS:
            config = place.pop(name, None)
            if isinstance(config, dict):
                prefix = "vision." if name.startswith("vision") else ""
                merged.update({prefix + key: value for key, value in _without_paths(config).items()})
    if additional:
        arguments["additional_config"] = additional
    repeated = {"tp_degree": "tensor_parallel_size", "pp_degree": "pipeline_parallel_size", "logical_nc_config": "lnc"}
    for name, field_ in repeated.items():
        if name in merged and merged[name] == fields.get(field_):
            del merged[name]
    sizes = (fields["tensor_parallel_size"], fields["pipeline_parallel_size"])
    fields["world_size"] = merged.pop("world_size", None) or prod(size for size in sizes if isinstance(size, int))
    return _clear(merged)


def _compile_environment(environ: Mapping[str, str], planned: Mapping[str, str]) -> dict[str, Json]:
    """Returns the process's variables that the compiler and XLA read, and all that the plan sets. The plan wins.

    Variables that hold paths and possible secrets are excluded (`key_exclusions`).
    """
    compiler = {name: value for name, value in environ.items() if key_exclusions.COMPILER.fullmatch(name)}
    kept: dict[str, Json] = {}
    for name, value in {**compiler, **planned}.items():
        if name in key_exclusions.ENVIRONMENT or key_exclusions.SECRET.search(name):
            continue
        text = _without_path_flags(value) if name in FLAGS else value.strip()
        if text:
            kept[name] = text
    return kept


def _without_path_flags(text: str) -> str:
    """Returns compiler flags in their order, without those that name paths."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    kept: list[str] = []
    skip = False
    for word in words:
        if skip and not word.startswith("-"):
            skip = False
            continue
        skip = False
        if key_exclusions.FLAGS.fullmatch(word.partition("=")[0]):
            skip = "=" not in word and bool(key_exclusions.FLAGS_WITH_VALUE.fullmatch(word))
            continue
        kept.append(word)
    return shlex.join(kept)


def _without_paths(config: Mapping[str, Json]) -> dict[str, Json]:
    """Removes excluded fields, also from nested configurations (`lora_config`, `text_neuron_config`)."""
    return {
        name: _without_paths(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in key_exclusions.NEURON_CONFIG
    }


def _without(config: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    return {name: normal(value) for name, value in config.items() if name not in names}


def _clear(fields: Mapping[str, Json]) -> dict[str, Json]:
    return {name: _clear(value) if isinstance(value, dict) else _short(value) for name, value in fields.items()}


def _short(value: Json) -> Json:
    return value if len(canonical(value)) <= LONGEST_CLEAR else f"blake3:{digest(value)}"


def _shape_of(checkpoint: CheckpointIdentity) -> str:
    return digest([_without(checkpoint.config, key_exclusions.MODEL_CONFIG), checkpoint.shape])
