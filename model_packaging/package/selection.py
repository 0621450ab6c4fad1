"""Selects the files of a model's folder for a package: those that an engine reads."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

# Files of a working folder or a clone that are not part of a model. `.env`, `.netrc` and similar contain secrets.
NEVER = (".*", "__pycache__", "*.pyc", "*.lock", "*.tmp", "*.incomplete", "endpoint-package.json")
# The same weights in another format, and training states: a hub has them beside the safetensors.
DOUBLE = ("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.gguf", "original/*", "consolidated*")
TRAINING = ("optimizer*", "scheduler.pt", "rng_state*", "trainer_state.json", "training_args.bin", "checkpoint-*/*")


def select(paths: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the selected paths, sorted, and the others with the reason.

    Weights in another format are excluded only if there are safetensors.
    """
    found = sorted(paths)
    safetensors = any("/" not in path and path.endswith(".safetensors") for path in found)
    taken, left = [], {}
    for path in found:
        if reason := _reason(path, safetensors):
            left[path] = reason
        else:
            taken.append(path)
    return taken, left


def _reason(path: str, safetensors: bool) -> str:
    if any(fnmatchcase(part, pattern) for part in PurePosixPath(path).parts for pattern in NEVER):
        return "no part of a model"
    if any(fnmatchcase(path, pattern) for pattern in TRAINING):
        return "state of a training"
    if safetensors and any(fnmatchcase(path, pattern) for pattern in DOUBLE):
        return "the weights again, in another format"
    return ""
