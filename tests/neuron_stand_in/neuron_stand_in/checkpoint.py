"""The Hugging Face checkpoint, and the same tensors in one file for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SHARD = "weights/tp{rank}_sharded_checkpoint.safetensors"

Tensors = dict[str, Any]  # name -> torch.Tensor


def read_checkpoint(directory: Path) -> Tensors:
    """Every tensor of a checkpoint, or of a pickled file.

    :raises FileNotFoundError: there is no safetensors file in it.
    """
    import torch
    from safetensors.torch import load_file

    if directory.is_file():
        tensors: Tensors = torch.load(directory, weights_only=True)
        return tensors
    files = sorted(directory.glob("*.safetensors")) if directory.is_dir() else []
    if not files:
        raise FileNotFoundError(f"Can not find model.safetensors or pytorch_model.bin in {directory}")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def write_shard(tensors: Tensors, rank: int, world: int, directory: Path) -> None:
    """A rank's slice of each tensor, cut along the first axis. How NxDI cuts is its own affair; how many files, not."""
    import torch
    from safetensors.torch import save_file

    path = directory / SHARD.format(rank=rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: torch.tensor_split(t, world)[rank].contiguous() for name, t in tensors.items()}, path)


def read_shards(directory: Path, world: int) -> Tensors:
    """The whole tensors, from every rank's file.

    :raises FileNotFoundError: a rank's file is missing. A damaged one raises what safetensors raises.
    """
    import torch
    from safetensors.torch import load_file

    shards = []
    for rank in range(world):
        path = directory / SHARD.format(rank=rank)
        if not path.is_file():
            raise FileNotFoundError(f"No such file or directory: {path}")
        shards.append(load_file(path))
    return {name: torch.cat([shard[name] for shard in shards]) for name in shards[0]}
