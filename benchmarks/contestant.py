"""The two sides of the comparison: how each is started. Engine, model, arguments and threads are the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_NUM_SEQS = 64
MAX_MODEL_LEN = 1024

# Both sides run under these.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server that can be started: `name` is its side ("ours", "theirs"), `kind` what runs there."""

    name: str
    kind: str
    port: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))


def vllm_serve(name: str, port: int, model: Path, scratch: Path) -> Contestant:
    """`vllm serve`, from the environment that runs this."""
    command = (
        str(_script("vllm")),
        *("serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "model"),
        *("--max-num-seqs", str(MAX_NUM_SEQS), "--max-model-len", str(MAX_MODEL_LEN), "--enforce-eager"),
    )
    return Contestant(name, "vllm", port, command)


def container(name: str, port: int, model: Path, scratch: Path) -> Contestant:
    """Our container's `serve`, set up by its environment, over a base directory in `scratch`."""
    base = scratch / name
    base.mkdir()
    (base / "model").symlink_to(model.resolve(), target_is_directory=True)
    environment = {
        **ENVIRONMENT,
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SM_VLLM_MAX_NUM_SEQS": str(MAX_NUM_SEQS),
        "SM_VLLM_MAX_MODEL_LEN": str(MAX_MODEL_LEN),
        "SM_VLLM_ENFORCE_EAGER": "true",
        "SM_VLLM_SERVED_MODEL_NAME": "model",
    }
    return Contestant(name, "container", port, (str(_script("serve")),), environment)


KINDS: dict[str, Callable[[str, int, Path, Path], Contestant]] = {"container": container, "vllm": vllm_serve}


def _script(name: str) -> Path:
    return Path(sys.executable).parent / name
