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
        changed = _make_readable(inner)
        draft = speculation.get("draft_config") if isinstance(speculation, dict) else None
        changed |= _make_readable(draft.get("neuron_config") if isinstance(draft, dict) else None)
        for holder, name, value in changes:
            if value is None or not isinstance(holder, dict) or holder.get(name) in {None, "", value}:
                continue
            holder[name] = value
            changed = True
        return changed


def _make_readable(neuron_config: object) -> bool:
    """Removes what NxDI cannot read again. Returns whether that changed it."""
    if not isinstance(neuron_config, dict):
        return False
    changed = False
    cache, lora = neuron_config.get("kv_quant_config"), neuron_config.get("lora_config")
    if isinstance(cache, dict) and not cache.keys() <= {"direct_cast"}:
        neuron_config["kv_quant_config"] = {"direct_cast": cache.get("direct_cast", True)}
        changed = True
    if isinstance(lora, dict) and lora.get("lora_ckpt_json"):
        changed |= bool(lora.get("lora_ckpt_paths") or lora.get("lora_ckpt_paths_cpu"))
        lora.update(lora_ckpt_paths=None, lora_ckpt_paths_cpu=None)
    return changed
