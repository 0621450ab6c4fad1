"""Rewrites the paths inside a restored `neuron_config.json`: they were those of the machine that compiled.

NxDI loads a checkpoint from the `_name_or_path` of the saved configuration, a draft model from `draft_model_path`,
quantized weights from `quantized_checkpoints_path`, and LoRA adapters from what `lora_config` names
(neuronx-distributed-inference, models/application_base.py, `checkpoint_loader_fn`; models/config.py,
`FusedSpecNeuronConfig`; modules/lora_serving/config.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from handler.storage.storage_errors import InvalidManifest

CONFIG = "neuron_config.json"
PARTS_OF_THE_MODEL = ("text_config", "vision_config")


@dataclass(frozen=True, slots=True)
class ModelPaths:
    """The paths of the models on this machine. None keeps the path of the file.

    :param adapter_file: the JSON file that lists the adapters.
    :param adapters: the directory of each adapter, by name.
    """

    model: str | None = None
    draft: str | None = None
    quantized_checkpoints: str | None = None
    adapter_file: str | None = None
    adapters: Mapping[str, str] = field(default_factory=dict)

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
            try:
                document = json.loads(path.read_bytes())
            except (ValueError, RecursionError) as error:
                raise InvalidManifest(f"of {path}", f"the file is not JSON: {error}") from error
            if not isinstance(document, dict):
                raise InvalidManifest(f"of {path}", "the file is not a JSON object")
            if self._apply(document):
                # The format of NxDI (`InferenceConfig.to_json_string`).
                scratch.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
                scratch.replace(path)

    def _apply(self, document: dict[str, object]) -> bool:
        speculation = document.get("fused_spec_config")
        changes: list[tuple[object, str, str | None]] = [(document, "_name_or_path", self.model)]
        changes += [(document.get(part), "_name_or_path", self.model) for part in PARTS_OF_THE_MODEL]
        changes += [(document.get("neuron_config"), "quantized_checkpoints_path", self.quantized_checkpoints)]
        if isinstance(speculation, dict):
            changes += [(speculation, "draft_model_path", self.draft)]
            changes += [(speculation.get("draft_config"), "_name_or_path", self.draft)]
        inner = document.get("neuron_config")
        lora = inner.get("lora_config") if isinstance(inner, dict) else None
        if isinstance(lora, dict):
            changes += [(lora, "lora_ckpt_json", self.adapter_file)]
            changes += [(lora.get("lora_ckpt_paths"), name, path) for name, path in self.adapters.items()]
        changed = False
        for holder, name, value in changes:
            if value is None or not isinstance(holder, dict) or holder.get(name) in {None, "", value}:
                continue
            holder[name] = value
            changed = True
        return changed
