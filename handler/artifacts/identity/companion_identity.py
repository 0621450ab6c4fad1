"""What the key takes in besides the model: adapters, a draft and quantized weights, each by what it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from handler.artifacts.identity.checkpoint_identity import CheckpointIdentity, identify
from handler.model.companions import Companions
from handler.storage.directory_objects import DirectoryObjects


@dataclass(frozen=True, slots=True)
class CompanionIdentities:
    """See `KeyInputs`."""

    adapters: dict[str, CheckpointIdentity] = field(default_factory=dict)
    draft: CheckpointIdentity | None = None
    quantized: CheckpointIdentity | None = None


def identify_companions(companions: Companions, scratch: Path, *, content: bool) -> CompanionIdentities:
    """Reads them where they are on this machine.

    Quantized weights that lie below `scratch` and were not brought there are the compile's own work: the model and the
    configuration say what they are.

    :param content: their digests as well, for the key of weights.
    :raises SettingError: one is broken.
    """
    adapters = {
        name: _of(path, "lora_modules", content=content, configured=True) for name, path in companions.adapters.items()
    }
    draft = companions.draft and _of(companions.draft, "speculative_model", content=content, configured=True)
    quantized = None
    if companions.quantized is not None and _given(companions, Path(companions.quantized), scratch):
        quantized = _of(companions.quantized, "quantized_checkpoints_path", content=content, configured=False)
    return CompanionIdentities(adapters, draft or None, quantized)


def _given(companions: Companions, path: Path, scratch: Path) -> bool:
    brought = str(path) in companions.moved.values()
    return path.exists() and (brought or not path.absolute().is_relative_to(scratch.absolute()))


def _of(where: str, setting: str, *, content: bool, configured: bool) -> CheckpointIdentity:
    path = Path(where)
    if not path.exists():  # a hub id: its name stands for it, and a new revision of it is not noticed
        return CheckpointIdentity({"hub": where}, "", {"hub": where})
    directory, only = (path, None) if path.is_dir() else (path.parent, path.name)
    return identify(DirectoryObjects(directory), setting, content=content, configured=configured, only=only)
