"""Rewrites the paths inside a restored `neuron_config.json`: they were those of the machine that compiled.

NxDI loads a checkpoint from the `_name_or_path` of the saved configuration, a draft model from `draft_model_path`,
quantized weights from `quantized_checkpoints_path`, and LoRA adapters from what `lora_config` names
(neuronx-distributed-inference, models/application_base.py, `checkpoint_loader_fn`; models/config.py,
`FusedSpecNeuronConfig`; modules/lora_serving/config.py).

Two parts of a saved configuration cannot be read again as they are. A `kv_quant_config` is saved with objects that its
class does not accept: only `direct_cast` survives, and a plan sets nothing else (NxD,
quantization/quantization_config.py:80). Adapters are saved beside the file that names them, and each may be named once
only (NxDI 0.10, modules/lora_serving/config.py:104).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from handler.json_value import Json, json_object, mapping
from handler.storage.storage_errors import InvalidManifest

CONFIG = "neuron_config.json"
PARTS_OF_THE_MODEL = ("text_config", "vision_config")


@dataclass(frozen=True, slots=True)
class ModelPaths:
    """The paths of the models on this machine. None keeps the path of the file.

    :param adapter_file: the JSON file that lists the adapters.
    """

    model: str | None = None
    draft: str | None = None
    quantized_checkpoints: str | None = None
    adapter_file: str | None = None

    def rewrite(self, directory: Path, files: list[str], scratch: Path) -> None:
        """Writes the paths into every `neuron_config.json` of an entry. A file that changes is replaced atomically.

        :param files: the paths of the entry's files.
        :param scratch: the temporary name of a new file, on the same file system.
        :raises InvalidManifest: a `neuron_config.json` is not a JSON object.
        """
        for name in files:
            if name.rpartition("/")[2] != CONFIG:
                continue
            path = directory / name
            document = json_object(path.read_bytes())
            if document is None:
                raise InvalidManifest(f"of {path}", "the file is not a JSON object")
            if self._apply(document):
                # The format of NxDI (`InferenceConfig.to_json_string`).
                scratch.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
                scratch.replace(path)

    def _apply(self, document: dict[str, Json]) -> bool:
        speculation = mapping(document.get("fused_spec_config"))
        draft = mapping(speculation.get("draft_config"))
        # A multimodal model's has a configuration in each part.
        parts = [document, *(mapping(document.get(part)) for part in PARTS_OF_THE_MODEL)]
        configs = [mapping(part.get("neuron_config")) for part in parts]
        changes = [
            *((part, "_name_or_path", self.model) for part in parts),
            *((config, "quantized_checkpoints_path", self.quantized_checkpoints) for config in configs),
            (speculation, "draft_model_path", self.draft),
            (draft, "_name_or_path", self.draft),
            *((mapping(config.get("lora_config")), "lora_ckpt_json", self.adapter_file) for config in configs),
        ]
        changed = True in [_make_readable(config) for config in (*configs, mapping(draft.get("neuron_config")))]
        for holder, name, value in changes:
            if value is not None and holder.get(name) not in (None, "", value):
                holder[name] = value
                changed = True
        return changed


def _make_readable(neuron_config: dict[str, Json]) -> bool:
    """Removes what NxDI cannot read again. Returns whether that changed it."""
    cache, lora = mapping(neuron_config.get("kv_quant_config")), mapping(neuron_config.get("lora_config"))
    changed = not cache.keys() <= {"direct_cast"}
    if changed:
        neuron_config["kv_quant_config"] = {"direct_cast": cache.get("direct_cast", True)}
    if lora.get("lora_ckpt_json"):
        changed |= bool(lora.get("lora_ckpt_paths") or lora.get("lora_ckpt_paths_cpu"))
        lora.update(lora_ckpt_paths=None, lora_ckpt_paths_cpu=None)
    return changed
