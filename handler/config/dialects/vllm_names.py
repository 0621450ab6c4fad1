"""Translates vLLM's engine arguments: `SM_VLLM_*` and `SM_ON_*`, and what documents and LMI's options name so.

AWS's image turns `SM_VLLM_MAX_NUM_SEQS=64` into `--max-num-seqs 64` and repeats JSON lists. It drops `false`, so that a
flag stays on that a user switched off. Here `false` means false. In optimum-neuron's image `SM_ON_BATCH_SIZE=4` becomes
`optimum-cli neuron serve --batch_size 4`, and an empty value is a flag that is set (huggingface/optimum-neuron,
docker/vllm/Dockerfile and optimum/commands/neuron/serve.py; arguments that it does not know go on to vLLM).

An argument that has a field becomes that field; the others go to `engine_args`. The arguments that hold the Neuron
configuration or the speculation are translated key by key, so that a plan can spell them for any line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from handler.config.assignment import Assignment, assign, converted, unused
from handler.config.fields import fields
from handler.config.problems import BadValue, unknown
from handler.config.values import parse_json, shown, to_bool, to_mapping
from handler.config.vllm_argument_table import known, server_arguments
from handler.errors import SettingError
from handler.json_value import Json

PREFIX, OPTIMUM_PREFIX = "SM_VLLM_", "SM_ON_"
# Arguments of optimum-neuron -> fields.
OPTIMUM_FIELDS: Mapping[str, str] = {
    "model": "model",
    "served_model_name": "served_model_name",
    "tensor_parallel_size": "tensor_parallel_size",
    "batch_size": "max_num_seqs",
    "sequence_length": "max_model_len",
}
TASK, NON_CACHED = "task", "allow_non_cached_model"
# Arguments that vLLM's tables do not have. The native plugin reads `neuron_config` inside `additional_config`.
NEURON_CONFIGS = ("override_neuron_config", "neuron_config")
HYPHENATED = tuple(name.replace("_", "-") for name in NEURON_CONFIGS)
# The keys of a multimodal model's override, which may hold no others.
MULTIMODAL_KEYS = ("text_neuron_config", "vision_neuron_config")
# The native plugin's section for the encoder, by the names of its versions. A plan writes its line's own.
VISION_SECTIONS = ("vision_neuron_config", "encoder_neuron_config")
LORA_MODULES, QUANTIZED = "lora_modules", "quantized_checkpoints_path"
OPENED = (*NEURON_CONFIGS, "additional_config", "speculative_config", LORA_MODULES)
# Keys of `speculative_config` -> fields.
SPECULATIVE: Mapping[str, str] = {
    "model": "speculative_model",
    "num_speculative_tokens": "num_speculative_tokens",
    "method": "speculation",
}
# vLLM 0.24's separate flags -> keys of `speculative_config`.
SPECULATIVE_FLAGS = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
LORA_FORMS = 'name=path or {"name": ..., "path": ...}, several with spaces or commas between them, or a JSON list'
EMPTY_FLAG = "it is empty, which vLLM's and AWS's images take as true"
FIXES = {
    "port": "Use SAGEMAKER_BIND_TO_PORT.",
    "model_tag": "Use ENDPOINT_MODEL.",
    "headless": "Run a further node with `neuron-endpoint node --rank`, in place of `serve`.",
}


def reads(name: str) -> bool:
    return name.startswith((PREFIX, OPTIMUM_PREFIX))


def translate(name: str, value: str) -> list[Assignment]:
    """:raises SettingError: there is no such argument, or the value does not fit."""
    optimum = name.startswith(OPTIMUM_PREFIX)
    prefix = OPTIMUM_PREFIX if optimum else PREFIX
    argument = canonical(name.removeprefix(prefix))
    if not optimum and not value.strip():
        return [unused(name, EMPTY_FLAG)] if is_empty_flag(name, value) else []
    if optimum and argument in OPTIMUM_FIELDS:
        return [assign(OPTIMUM_FIELDS[argument], value, name)] if value.strip() else []
    if optimum and argument == NON_CACHED:
        why = f"optimum reads it as SM_VLLM_MODEL_LOADER_EXTRA_CONFIG={NON_CACHED}; other lines compile what they need"
        return [unused(name, why)]
    if optimum and argument == TASK:
        if value in {"", "generate"}:
            return []
        raise SettingError(name, f"'{value[:80]}' is not a task of this endpoint, which generates text", "Remove it.")
    if not is_known(argument):
        own = (*OPTIMUM_FIELDS, TASK, NON_CACHED) if optimum else ()
        known: list[str] = [other.upper() for other in (*names(), *own)]
        what = "an argument of optimum-neuron or vLLM" if optimum else "an engine argument of vLLM"
        raise unknown(name, argument.upper(), known, prefix, what)
    if not value.strip():
        return translate_argument(argument, True, name) if is_empty_flag(name, value) else []
    return translate_argument(argument, value, name)


def is_empty_flag(name: str, value: Json) -> bool:
    """Whether the variable is a flag of another image, which turns it on, or `no_...` off, with an empty value."""
    argument = canonical(name.removeprefix(PREFIX).removeprefix(OPTIMUM_PREFIX))
    empty = isinstance(value, str) and not value.strip()
    return reads(name) and empty and (is_flag(argument) or is_flag(argument.removeprefix("no_")))


def translate_argument(name: str, value: Json, setting: str) -> list[Assignment]:
    """Translates one engine argument.

    :param name: vLLM's name, with hyphens or underscores, in any case. `no_...` turns a flag off.
    :param value: a text, or a value from a document.
    :param setting: the name to use in errors.
    :raises SettingError: the argument is unknown or belongs to vLLM's HTTP server, or the value does not fit.
    """
    name = canonical(name)
    try:
        if name in OPENED:
            return [] if value is None else _opened(name, value, setting)
        if name in front_end_arguments():
            return [assign(name, value, setting)]
        if name == "config":
            problem = "it names a file of settings for vLLM's own command, which is not read"
            raise SettingError(setting, problem, "Put its settings into the document that ENDPOINT_CONFIG names.")
        if name in server_arguments():
            problem = "belongs to vLLM's own HTTP server, which does not run here"
            raise SettingError(setting, problem, FIXES.get(name, "Remove it."))
        argument = known().get(name)
        if argument is None:
            positive = name.removeprefix("no_")
            if is_flag(positive):
                return translate_argument(positive, not to_bool(value), setting)
            raise unknown(setting, name, names(), "", "an engine argument of vLLM")
        if name in fields():
            return [assign(name, value, setting)]
        if name in SPECULATIVE_FLAGS:
            key = SPECULATIVE_FLAGS[name]
            foreign = key == "method" and value not in fields()["speculation"].metadata.choices
            return _speculative({key: value}, setting) if foreign else [assign(SPECULATIVE[key], value, setting)]
        return [Assignment("engine_args", argument.convert(value), key=name)]
    except BadValue as bad:
        raise bad.named(setting) from None


def canonical(name: str) -> str:
    """The name in lower case with underscores: `--max-num-seqs` and `MAX_NUM_SEQS` become `max_num_seqs`."""
    return name.strip().lower().lstrip("-").replace("-", "_")


def is_known(name: str) -> bool:
    """Whether any version of vLLM has the argument."""
    name = canonical(name)
    if name in known() or name in OPENED or name in server_arguments():
        return True
    return name.startswith("no_") and is_flag(name.removeprefix("no_"))


def is_flag(name: str) -> bool:
    name = canonical(name)
    if name in front_end_arguments():
        return fields()[name].kind == "bool"
    argument = known().get(name)
    return argument is not None and argument.kind == "bool"


@lru_cache(maxsize=1)
def front_end_arguments() -> frozenset[str]:
    """The arguments of vLLM's HTTP server that go to its serving classes, which run in this process."""
    return frozenset(name for name, field in fields().items() if field.metadata.server_argument)


def names() -> tuple[str, ...]:
    """Every argument that can be translated, in vLLM's spelling."""
    return tuple(sorted({*known(), *OPENED, *front_end_arguments()}))


def raw_neuron_config(config: Mapping[str, Json], setting: str, via: str = "") -> list[Assignment]:
    """Translates a raw NeuronConfig: one assignment for each key. Keys without a field stay raw.

    Adapters become a field, so that a plan can spell them for any line, and requests can name them. Quantized weights
    do, so that they are fetched and identified. The fork takes only
    a list of names and paths (vLLM 0.9.1, worker/neuronx_distributed_model_runner.py), and its guide has an object.
    The plugin ignores the hyphenated `override-neuron-config` inside `additional_config`, although the official guide
    prints it, and hyphenated keys. All are read here. The sources keep the spelling, so that a check can warn the user.

    :param via: the keys between the setting and this object, as the user spelled them.
    :raises SettingError: an empty key, or a multimodal configuration that is not an object.
    """
    assignments = []
    for spelled, value in config.items():
        path, key = f"{via}.{spelled}" if via else spelled, spelled.replace("-", "_")
        if not key.strip():
            raise SettingError(f"{setting}.{path}", "it is an empty key", "Give the key a name, or remove it.")
        if key in MULTIMODAL_KEYS:
            assignments.append(assign(key, value, setting, path))
        elif key == LORA_MODULES:
            assignments.append(assign(key, converted(_lora_modules, value or [], f"{setting}.{path}"), setting, path))
        elif key == QUANTIZED and value is not None:
            assignments.append(assign(key, value, setting, path))
        else:
            assignments.append(Assignment("neuron_config", value, key=key, via=path))
    return assignments


def _opened(name: str, value: Json, setting: str) -> list[Assignment]:
    if name == LORA_MODULES:
        return [assign(name, _lora_modules(value), setting)]
    content = to_mapping(value)
    if name in NEURON_CONFIGS:
        return raw_neuron_config(content, setting)
    return _additional(content, setting) if name == "additional_config" else _speculative(content, setting)


def _additional(content: Mapping[str, Json], setting: str) -> list[Assignment]:
    """Takes the Neuron configuration out of vLLM's `additional_config`. The other keys stay."""
    assignments: list[Assignment] = []
    rest: dict[str, Json] = {}
    for key, value in content.items():
        if canonical(key) in NEURON_CONFIGS:
            inner = converted(to_mapping, {} if value is None else value, f"{setting}.{key}")
            assignments += raw_neuron_config(inner, setting, via=key)
        elif key in VISION_SECTIONS:
            assignments.append(assign("vision_neuron_config", value, setting, key))
        else:
            rest[key] = value
    if rest:
        assignments.append(Assignment("engine_args", rest, key="additional_config"))
    return assignments


def _speculative(content: Mapping[str, Json], setting: str) -> list[Assignment]:
    """Translates draft, length and method to their fields. With a method that has no field value, all goes to vLLM."""
    method = content.get("method")
    if method is not None and method not in fields()["speculation"].metadata.choices:
        return [Assignment("engine_args", dict(content), key="speculative_config")]
    assignments = [
        assign(SPECULATIVE[key], value, setting, key)
        for key, value in content.items()
        if key in SPECULATIVE and value is not None
    ]
    rest = {key: value for key, value in content.items() if key not in SPECULATIVE}
    if rest:
        assignments.append(Assignment("engine_args", rest, key="speculative_config"))
    return assignments


def _lora_modules(value: Json) -> Json:
    """Reads vLLM's forms, one or several `name=path` or `{"name": ..., "path": ...}`, and ours, `{name: path}`.

    Several stand in a JSON list, or one after the other with spaces or commas between them.
    """
    if isinstance(value, str):
        value = _lora_texts(value.strip())
    if isinstance(value, dict):
        if set(value) - {"base_model_name"} != {"name", "path"}:
            return value
        value = [value]
    paths: dict[str, Json] = {}
    for entry in value if isinstance(value, list) else [value]:
        name, path = _lora_module(entry)
        if name in paths:
            raise BadValue(f"the adapter {shown(name)} is given twice", "Keep one of the two")
        paths[name] = path
    return paths


def _lora_texts(text: str) -> Json:
    if text.startswith("{"):
        objects = re.split(r"(?<=\})[\s,]+(?=\{)", text)
        return parse_json(text) if len(objects) == 1 else [*objects]
    return parse_json(text) if text.startswith("[") else [*re.split(r"\s*,\s*(?=[^\s,=/]+=)|\s+", text)]


def _lora_module(entry: Json) -> tuple[str, Json]:
    if isinstance(entry, str):
        name, equals, path = entry.partition("=")
        if name and equals and path:
            return name, path
        entry = parse_json(entry) if entry.lstrip().startswith("{") else entry
    if isinstance(entry, dict) and isinstance(entry.get("name"), str) and "path" in entry:
        return str(entry["name"]), entry["path"]
    raise BadValue(f"{shown(entry)} is not an adapter", f"Write {LORA_FORMS}")
