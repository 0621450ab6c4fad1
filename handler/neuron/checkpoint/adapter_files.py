"""Checks the files of a LoRA adapter against its model. vLLM ignores what matches no module of the model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.checkpoint_files import CheckpointFiles, read_json
from handler.neuron.checkpoint.checkpoint_reader import header_of, open_checkpoint, shards_or_all
from handler.neuron.checkpoint.model_facts import text_part

CONFIG = "adapter_config.json"
# Only safetensors is supported: PEFT's other format is a pickle.
WEIGHTS = "adapter_model.safetensors"
# PEFT's name of a tensor: the module that it changes, and which of the two factors it is.
KEY: Final = re.compile(r"(?:base_model\.model\.)?(.+)\.(?:lora_([AB])\.weight|lora_embedding_([AB]))")
BASE_WEIGHTS: Final = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")
# vLLM's own values of max_lora_rank (vllm/config/lora.py, 0.9.1 to 0.32; not the 1 of later ones), and its default.
RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
DEFAULT_RANK: Final = 16
NEUTRAL: Final[tuple[tuple[str, Json], ...]] = (
    *(("modules_to_save", []), ("use_dora", False), ("rank_pattern", {}), ("bias", "none")),
)


class AdapterProblem(Exception):
    """The adapter cannot be served. The message completes the sentence "the adapter cannot be loaded: ..."."""


def model_modules(model: str) -> dict[str, tuple[int, ...]] | None:
    """The modules of a model with the shapes of their weights, or (). None: not known, as if multimodal."""
    files = open_checkpoint(model)
    config = None if files is None else read_json(files, "config.json")
    if files is None or config is None or text_part(config) is not config:
        return None
    whole = "quantization_config" not in config and config.get("model_type") != "gpt2"  # which has them transposed
    tensors = sorted(item for name in shards_or_all(files) for item in header_of(files, name).items())
    return {name.rpartition(".")[0]: tensor.shape if whole else () for name, tensor in tensors} or None


def check_adapter(
    files: CheckpointFiles,
    most_rank: int,
    modules: Mapping[str, tuple[int, ...]] | None = None,
    targets: Collection[str] | None = None,
) -> None:
    """Checks an adapter's configuration, and its weights by their header. What is None is not known.

    :param modules: of the model, as `model_modules` has them.
    :param targets: the endpoint's `lora_target_modules`.
    :raises AdapterProblem: a file is missing or damaged, or the engine cannot serve the adapter with this model.
    """
    try:
        sizes = files.listing()
        for name in (CONFIG, WEIGHTS):
            if name not in sizes:
                model = ", but there is a model's config.json" * ("config.json" in sizes)
                pickled = " (adapter_model.bin is a pickle, which is not accepted)" * ("adapter_model.bin" in sizes)
                raise AdapterProblem(f"there is no {name} in {files.where[:200]}{model}{pickled}")
        rank = _rank(read_json(files, CONFIG) or {}, most_rank)
        header = header_of(files, WEIGHTS, sizes[WEIGHTS])
    except SettingError as error:
        raise AdapterProblem(f"{error.setting} {error.problem}") from None
    ranks = {size for key, tensor in header.items() if ".lora_A." in key for size in tensor.shape[:1]}
    if ranks - {rank} or not header:
        stored = ", ".join(sorted(map(str, ranks))) or "unknown"
        raise AdapterProblem(f"the rank in {WEIGHTS} is {stored}, but in {CONFIG} it is {rank}")
    for key, tensor in sorted(header.items()):
        found_key, name = KEY.fullmatch(key), key[:200]
        if found_key is None:
            if not key.endswith(BASE_WEIGHTS):
                raise AdapterProblem(f"{name} is no factor of a LoRA adapter")
            continue
        module, factor, embedded = found_key.groups()
        if targets and module.rpartition(".")[2] not in targets:
            raise AdapterProblem(f"{name} changes a module that is not in lora_target_modules")
        if modules is None or ".experts" in module:
            continue
        if module not in modules:
            raise AdapterProblem(f"{name} matches no module of the model")
        shape = modules[module][::-1] if embedded else modules[module]  # outputs by inputs
        if shape and tensor.shape != ((rank, shape[-1]) if "A" in (factor, embedded) else (shape[0], rank)):
            raise AdapterProblem(f"{name} has the shape {[*tensor.shape]}, and the module {[*shape]}")


def _rank(config: Mapping[str, Json], most: int) -> int:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    problem = ""
    if config.get("peft_type", "LORA") != "LORA":
        problem = "its peft_type is not LORA"
    elif not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        problem = f"{CONFIG} has no rank: 'r' must be a positive integer"
    elif rank > most:
        enough = next((size for size in RANKS if size >= rank), None)
        fix = f"start the endpoint with max_lora_rank {enough}" if enough else f"vLLM's largest is {RANKS[-1]}"
        problem = f"its rank {rank} is above {most}: {fix}"
    elif not isinstance(alpha, int | float) or isinstance(alpha, bool):
        problem = f"{CONFIG} has no 'lora_alpha'"
    elif not isinstance(config.get("target_modules"), list | str):
        problem = f"{CONFIG} has no 'target_modules'"
    for key, neutral in NEUTRAL:
        if config.get(key) not in (None, neutral):
            problem = problem or f"{CONFIG} has '{key}', which vLLM does not support"
    if problem or not isinstance(rank, int):
        raise AdapterProblem(problem)
    return rank
