"""Writes docs/configuration.md from the code: each field with its names, values and default. See `make docs`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from handler.config.config_rows import json_value
from handler.config.dialects import container_variables as containers
from handler.config.dialects import endpoint_variables as ours
from handler.config.dialects import neuron_variables as neuron
from handler.config.dialects import vllm_names as engine
from handler.config.field_metadata import ModelFile
from handler.config.fields import INT_BOUNDS, ConfigField, fields
from handler.config.vllm_argument_table import server_arguments

HEAD = """# Configuration

`make docs` writes this page from `handler/config/endpoint_config.py`; a test fails if the two differ. `neuron-endpoint
config explain --all` prints the settings of one endpoint, with each value and its source.

There are three ways to set a field: the variable `ENDPOINT_<FIELD>`; the field's name as a key in the document that
`ENDPOINT_CONFIG` names, or in `endpoint.yaml` beside the model; or one of the further names in the last column. LMI's
`OPTION_*` names, and variables of the Neuron software that are passed on unchanged, are not listed here. Times are in
seconds, sizes in bytes, lengths in tokens. "Unset" means that there is no default. If the engine needs a value, the
line and the instance decide it; `neuron-endpoint plan` shows the result.
"""
WITHOUT_COUNTERPART = """
## Variables of other containers without a counterpart

`check` lists them as findings without effect (`no-effect`). `ROPE_SCALING`, `KV_CACHE_DTYPE` ... are errors.

| variables | here |
|---|---|
"""
# Title -> the first field of the group, in the order of the dataclass.
GROUPS: Mapping[str, str] = {
    "The model and what it runs on": "model",
    "The serving process": "scratch",
    "Limits on a request": "max_queue",
    "Multi-model, asynchronous and stateful endpoints, batch transform": "multi_model",
    "Shape and batching": "tensor_parallel_size",
    "Quantization": "quantization",
    "Sampling": "on_device_sampling",
    "Speculation": "speculative_model",
    "Kernels and graph options": "attn_kernel_enabled",
    "LoRA, multimodal, distributed": "enable_lora",
    "Chat templates, tool calls and replies": "chat_template",
    "Settings without a field of their own": "neuron_config",
}
KINDS: Mapping[str, str] = {
    "str": "text",
    "bool": "true or false",
    "int": "whole number",
    "float": "number",
    "Path": "directory",
    "tuple[str, ...]": "list",
    "tuple[int, ...]": "list of whole numbers",
    "Mapping[str, str]": "JSON object of texts",
    "Mapping[str, Json]": "JSON object",
}


def text() -> str:
    """The whole page."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    yield HEAD
    owners = [f"`{name}`" for name, field in fields().items() if field.metadata.model_file is ModelFile.NEVER]
    yield f"\nFiles beside the model describe the model only. They cannot set {', '.join(owners)}.\n"
    titles = {first: title for title, first in GROUPS.items()}
    for name, field in fields().items():
        if name in titles:
            yield f"\n## {titles[name]}\n\n| field | takes | default | what | further names |\n|---|---|---|---|---|\n"
        further = ", ".join(f"`{other}`" for other in _further(name))
        row = (f"`{name}`", _takes(field), _default(field), field.metadata.text, further)
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n"
    yield WITHOUT_COUNTERPART
    for reason in dict.fromkeys(containers.NO_COUNTERPART.values()):
        names = [f"`{variable}`" for variable, other in containers.NO_COUNTERPART.items() if other == reason]
        yield f"| {', '.join(names)} | {reason} |\n"


def _takes(field: ConfigField) -> str:
    if choices := field.metadata.choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    secret = ", a secret" if field.metadata.secret else ""
    return f"{KINDS[field.kind]}{_range(field)}{secret}"


def _range(field: ConfigField) -> str:
    bounds = field.bounds()
    if bounds is None or bounds == INT_BOUNDS:
        return ", above 0" if bounds else ""
    return f", {bounds[0]} to {bounds[1]}"


def _default(field: ConfigField) -> str:
    value = json_value(field.default)
    if value is None:
        return "unset"
    if value in ([], {}):
        return "empty"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _further(name: str) -> list[str]:
    tables = (containers.FIELDS, containers.ARGUMENTS)
    found = [other for table in tables for other, target in table.items() if target == name]
    found += [
        f"{engine.OPTIMUM_PREFIX}{other.upper()}"
        for other, target in engine.OPTIMUM_FIELDS.items()
        if target == name and other != name
    ]
    found += [other for other, target in neuron.FIELDS.items() if target == name]
    if name == "max_body":
        found.append(f"{ours.PREFIX}{ours.MEGABYTES.upper()}")
    argument = name in engine.names() and (fields()[name].metadata.server_argument or name not in server_arguments())
    return [*([f"{engine.PREFIX}{name.upper()}"] if argument else []), *found]


if __name__ == "__main__":
    Path("docs/configuration.md").write_text(text())
