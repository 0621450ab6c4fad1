"""Checks the files of a LoRA adapter before the engine gets them, and copies them.

vLLM reads an adapter's files again, in the middle of a step, whenever the adapter has left memory. If a file is gone
by then, the engine ends with all its requests (vllm/lora/worker_manager.py, LRUCacheWorkerLoRAManager). So the engine
gets a copy that nobody else deletes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from handler.engine.adapters.adapter_errors import InvalidAdapter
from handler.json_value import Json
from handler.storage.safetensors_header import BrokenFile, file_range, read_header

CONFIG = "adapter_config.json"
# Only safetensors is supported: PEFT's other format is a pickle.
WEIGHTS = "adapter_model.safetensors"
MAX_CONFIG = 1024 * 1024


def copy_checked(name: str, source: Path, target: Path, max_rank: int) -> None:
    """Checks the adapter in `source` and copies its files to `target`.

    :raises InvalidAdapter: a file is missing, or vLLM cannot serve the adapter.
    """
    for file in (CONFIG, WEIGHTS):
        if not (source / file).is_file():
            model = ", but there is a model's config.json" * (source / "config.json").exists()
            pickle = " (adapter_model.bin is a pickle, which is not accepted)"
            pickled = pickle * (source / "adapter_model.bin").exists()
            raise InvalidAdapter(name, f"there is no {file} in {source}{model}{pickled}")
    rank = _rank(name, _config(name, source / CONFIG), max_rank)
    _check_weights(name, source / WEIGHTS, rank)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        for file in (CONFIG, WEIGHTS):
            shutil.copyfile(source / file, target / file)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise InvalidAdapter(name, f"it cannot be copied ({error.strerror})") from None


def _config(name: str, path: Path) -> dict[str, Json]:
    if path.stat().st_size > MAX_CONFIG:
        raise InvalidAdapter(name, f"{CONFIG} is larger than {MAX_CONFIG:,} bytes")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidAdapter(name, f"{CONFIG} is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidAdapter(name, f"{CONFIG} is not a JSON object")
    return found


def _rank(name: str, config: dict[str, Json], max_rank: int) -> int:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if config.get("peft_type", "LORA") != "LORA":
        raise InvalidAdapter(name, "its peft_type is not LORA")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise InvalidAdapter(name, f"{CONFIG} has no rank: 'r' must be a positive integer")
    if rank > max_rank:
        raise InvalidAdapter(name, f"its rank {rank} is above {max_rank}: start the endpoint with max_lora_rank {rank}")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise InvalidAdapter(name, f"{CONFIG} has no 'lora_alpha'")
    if not isinstance(config.get("target_modules"), list | str):
        raise InvalidAdapter(name, f"{CONFIG} has no 'target_modules'")
    for key, neutral in (
        ("modules_to_save", (None, [])),
        ("use_dora", (None, False)),
        ("rank_pattern", (None, {})),
        ("bias", (None, "none")),
    ):
        if config.get(key) not in neutral:
            raise InvalidAdapter(name, f"{CONFIG} has '{key}', which vLLM does not support")
    return rank


def _check_weights(name: str, path: Path, rank: int) -> None:
    """Checks that the safetensors file is complete, by the offsets in its header, and has the configured rank."""
    read = file_range(path)
    try:
        header = read_header(read)
    except BrokenFile:
        raise InvalidAdapter(name, f"{WEIGHTS} is not a safetensors file") from None
    ranks = {size for key, tensor in header.items() if ".lora_A." in key for size in tensor.shape[:1]}
    if ranks != {rank}:
        found = ", ".join(sorted(map(str, ranks))) or "unknown"
        raise InvalidAdapter(name, f"the rank in {WEIGHTS} is {found}, but in {CONFIG} it is {rank}")
    try:
        read_header(read, path.stat().st_size)
    except BrokenFile:
        raise InvalidAdapter(name, f"{WEIGHTS} does not have the length that its header gives") from None
