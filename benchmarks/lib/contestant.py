"""The two sides of the comparison, and how each is started. Engine, model, arguments and threads are the same."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE_MODEL = ROOT / "sample_model" / "weights"

# Both sides run under these.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    # Ours sets it where it is eager (handler/neuron/lines/cpu.py): the same sampler on both sides, compiled on neither.
    "TORCHDYNAMO_DISABLE": "1",
}


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The engine arguments of both sides.

    :param worker: a class that replaces vLLM's worker. None is vLLM's own.
    :param dtype: of the weights. Ours would choose float32 on a CPU that computes bfloat16 several times slower.
    """

    max_num_seqs: int = 64
    max_model_len: int = 1024
    worker: str | None = None
    dtype: str = "bfloat16"

    @property
    def environment(self) -> dict[str, str]:
        if self.worker is None:
            return dict(ENVIRONMENT)
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return {**ENVIRONMENT, "PYTHONPATH": path}


REAL = EngineShape()
STUB = EngineShape(max_num_seqs=256, worker="benchmarks.serving.stub_worker.StubWorker")


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server that can be started. `name` is its side ("ours", "theirs"), `kind` is the software."""

    name: str
    kind: str
    port: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    health: str = "/ping"  # the path of its health check


def vllm_serve(name: str, port: int, model: Path, scratch: Path, shape: EngineShape = REAL) -> Contestant:
    """Returns `vllm serve` of this environment."""
    command = (
        str(_script("vllm")),
        *("serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "model"),
        *("--max-num-seqs", str(shape.max_num_seqs), "--max-model-len", str(shape.max_model_len), "--enforce-eager"),
        *("--dtype", shape.dtype),
        *(() if shape.worker is None else ("--worker-cls", shape.worker)),
    )
    return Contestant(name, "vllm", port, command, _with_metadata(shape.environment, scratch / f"{name}-metadata"))


def container(name: str, port: int, model: Path, scratch: Path, shape: EngineShape = REAL) -> Contestant:
    """Returns our container's `serve`, configured by environment variables, with a base directory in `scratch`."""
    base = scratch / name
    base.mkdir(parents=True)
    (base / "model").symlink_to(model.resolve(), target_is_directory=True)
    environment = {
        **shape.environment,
        "SAGEMAKER_BASE_DIR": str(base),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SM_VLLM_MAX_NUM_SEQS": str(shape.max_num_seqs),
        "SM_VLLM_MAX_MODEL_LEN": str(shape.max_model_len),
        "SM_VLLM_ENFORCE_EAGER": "true",
        "SM_VLLM_SERVED_MODEL_NAME": "model",
        "SM_VLLM_DTYPE": shape.dtype,
    }
    if shape.worker is not None:
        environment["SM_VLLM_WORKER_CLS"] = shape.worker
    if shape is STUB:
        environment["ENDPOINT_PREFILL_TOKENS"] = "0"  # its prompts cost nothing: no stream waits for them
    return Contestant(name, "container", port, (str(_script("serve")),), environment)


def rust_front_end(name: str, port: int, model: Path, scratch: Path, shape: EngineShape = REAL) -> Contestant:
    """Returns vLLM's front end in Rust over this environment's engine. `VLLM_RS_PATH` is its binary.

    The binary is `vllm/vllm-rs` of PyPI's wheel `vllm`.
    """
    command = (
        *(os.environ["VLLM_RS_PATH"], "serve", str(model), "--python", sys.executable, "--port", str(port)),
        *("--served-model-name", "model", "--max-model-len", str(shape.max_model_len)),
        *("--", "--max-num-seqs", str(shape.max_num_seqs), "--enforce-eager", "--dtype", shape.dtype),
        *(() if shape.worker is None else ("--worker-cls", shape.worker)),
    )
    return Contestant(
        name, "rust", port, command, _with_metadata(shape.environment, scratch / f"{name}-metadata"), "/health"
    )


KINDS: dict[str, Callable[[str, int, Path, Path, EngineShape], Contestant]] = {
    "container": container,
    "vllm": vllm_serve,
    "rust": rust_front_end,
}


def _with_metadata(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Adds a directory to PYTHONPATH with the metadata of a package `vllm`.

    vLLM's command line asks for it (0.29.0 ends without it), and `vllm-cpu` has only its own.
    """
    version = f"{importlib.metadata.version('vllm-cpu').partition('+')[0]}+cpu"
    package = directory / f"vllm-{version}.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
    path = environment.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (str(directory), path)))}


def _script(name: str) -> Path:
    return Path(sys.executable).parent / name
