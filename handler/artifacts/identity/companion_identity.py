"""Identifies the checkpoints beside the model that a key depends on: adapters, a draft model and quantized weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from handler.artifacts.identity.checkpoint_identity import CheckpointIdentity, identify
from handler.model.companions import Companions
from handler.storage.directory_objects import DirectoryObjects


@dataclass(frozen=True, slots=True)
class CompanionIdentities:
    """The identities of all companions. See `KeyInputs`."""

    adapters: dict[str, CheckpointIdentity] = field(default_factory=dict)
    draft: CheckpointIdentity | None = None
    quantized: CheckpointIdentity | None = None


def identify_companions(companions: Companions, scratch: Path, *, content: bool) -> CompanionIdentities:
    """Reads the companions from their directories on this machine.

    Quantized weights below `scratch` that were not downloaded are results of the compile itself: the model and the
    configuration already identify them.

    :param content: whether their content is digested, which only the key of weights needs.
    :raises SettingError: a companion is broken.
    """
    adapters = {
        name: _of(path, "lora_modules", content=content, configured=True) for name, path in companions.adapters.items()
    }
    draft = companions.draft and _of(companions.draft, "speculative_model", content=content, configured=True)
    quantized = None
    if companions.quantized is not None and _is_input(companions, Path(companions.quantized), scratch):
        quantized = _of(companions.quantized, "quantized_checkpoints_path", content=content, configured=False)
    return CompanionIdentities(adapters, draft or None, quantized)


def _is_input(companions: Companions, path: Path, scratch: Path) -> bool:
    downloaded = str(path) in companions.moved.values()
    return path.exists() and (downloaded or not path.absolute().is_relative_to(scratch.absolute()))


def _of(where: str, setting: str, *, content: bool, configured: bool) -> CheckpointIdentity:
    path = Path(where)
    if not path.exists():  # a hub id: identified by its name, so a new revision is not noticed
        return CheckpointIdentity({"hub": where}, "", {"hub": where})
    directory, only = (path, None) if path.is_dir() else (path.parent, path.name)
    return identify(DirectoryObjects(directory), setting, content=content, configured=configured, only=only)
