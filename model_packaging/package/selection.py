"""Which files of a model's folder belong into a package: what an engine reads, and nothing that only a hub needs."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

# Of a folder that is worked in, or a clone: no part of a model. `.env`, `.netrc` and the like hold secrets.
NEVER = (".*", "__pycache__", "*.pyc", "*.lock", "*.tmp", "*.incomplete", "endpoint-package.json")
# Weights a second time in another format, and the state of a training: the hub serves them beside the safetensors.
DOUBLE = ("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.gguf", "original/*", "consolidated*")
TRAINING = ("optimizer*", "scheduler.pt", "rng_state*", "trainer_state.json", "training_args.bin", "checkpoint-*/*")


def select(paths: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The paths to take, sorted, and the others with the reason.

    Weights of another format are left out only where there are safetensors.
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
