"""Downloads what a model is served with: LoRA adapters, a draft model, quantized weights.

All must be local files before the engine starts, because they are compiled in or loaded by path.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json
from handler.model.model_source import download
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.lines.lora import adapter_document, adapter_file, base_adapter_directory, has_base_adapter
from handler.storage.safetensors_header import PREFIX, BrokenFile, file_range, read_header
from handler.storage.transfer.transfer_progress import ByteProgress, ignore_bytes

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class Companions:
    """The locations of adapters, draft and quantized weights on this machine.

    :param adapters: the name that requests use -> the directory.
    :param draft: a directory, or a hub id.
    :param quantized: a directory or a file. It need not exist yet, because the compile may write it.
    :param moved: the configured S3 location -> the directory that it was downloaded to.
    """

    adapters: Mapping[str, str] = field(default_factory=dict)
    draft: str | None = None
    quantized: str | None = None
    moved: Mapping[str, str] = field(default_factory=dict)

    def rewritten(self, plan: EnginePlan) -> EnginePlan:
        """The plan with local directories in place of S3 locations."""
        return replace(plan, engine_args={name: self._local(value) for name, value in plan.engine_args.items()})

    def _local(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.moved.get(value, value)
        if isinstance(value, dict):
            return {name: self._local(item) for name, item in value.items()}
        return [self._local(item) for item in value] if isinstance(value, list) else value


def fetch_companions(
    config: EndpointConfig, progress: ByteProgress = ignore_bytes, *, compiled_in: bool = True
) -> Companions:
    """Downloads what is in S3, and writes the file that names the adapters.

    :param compiled_in: adapters are compiled into the graph. Otherwise they are loaded into the running engine later.
    :param progress: called with the bytes done and the total bytes of the current download.
    :raises SettingError: one of them does not exist, or is not an adapter.
    :raises StartFailed: S3 denied access or the download failed.
    """
    moved: dict[str, str] = {}

    def local(address: str, setting: str) -> str:
        if not address.startswith("s3://"):
            return str(Path(address).absolute()) if address.startswith(("./", "../")) else address
        moved[address] = str(download(address, config, setting, progress))
        return moved[address]

    def optional(address: str | None, setting: str) -> str | None:
        return None if address is None else local(address, config.source(setting).name or setting)

    adapters = {}
    for name, address in config.lora_modules.items() if compiled_in else ():
        setting = config.source("lora_modules").name or "lora_modules"
        adapters[name] = local(address, setting)
        if not (Path(adapters[name]) / ADAPTER_CONFIG).is_file():
            why = f"adapter '{name[:60]}' at {adapters[name]} has no {ADAPTER_CONFIG}"
            raise SettingError(setting, why, "Give the directory or s3:// prefix that PEFT saved the adapter to.")
    draft = optional(config.speculative_model, "speculative_model")
    quantized = optional(config.quantized_checkpoints_path, "quantized_checkpoints_path")
    if adapters:
        _write(Path(adapter_file(config)), _listed(replace(config, lora_modules=adapters)))
    return Companions(adapters, draft, quantized, moved)


def _listed(config: EndpointConfig) -> dict[str, Json]:
    """The list of adapters, with one of zeros for requests to the model itself if there is room for it."""
    base = base_adapter_directory(config)
    shutil.rmtree(base, ignore_errors=True)
    first = Path(next(iter(config.lora_modules.values())))
    made = has_base_adapter(config) and _write_zero_adapter(first, base)
    return adapter_document(config, str(base) if made else None)


def _write_zero_adapter(source: Path, target: Path) -> bool:
    """Writes a copy of an adapter whose weights are zero. False if the adapter has no valid safetensors file.

    With it, requests without an adapter get the model's own answer. The NxDI plugin asks every request of an engine
    with LoRA for its adapter, and its engine ends at one without (plugin 0.5.0,
    worker/neuronx_distributed_model_runner.py:1492).
    """
    weights = source / ADAPTER_WEIGHTS
    try:
        read_header(file_range(weights), weights.stat().st_size)
    except (OSError, BrokenFile):
        return False
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / ADAPTER_CONFIG, target / ADAPTER_CONFIG)
    with weights.open("rb") as adapter, (target / ADAPTER_WEIGHTS).open("wb") as zeros:
        prefix = adapter.read(PREFIX)
        zeros.write(prefix + adapter.read(int.from_bytes(prefix, "little")))
        zeros.truncate(weights.stat().st_size)
    return True


def _write(path: Path, document: dict[str, Json]) -> None:
    """Replaces the file atomically, because another process may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)
