"""A very small Llama that ships with the project, so that tests and notebooks chat with a model offline."""

from pathlib import Path

__all__ = ["adapter_path", "path"]


def path() -> Path:
    """The directory of the shipped weights, in the layout of a Hugging Face checkpoint."""
    return Path(__file__).parent / "weights"


def adapter_path() -> Path:
    """The directory of the shipped LoRA adapter, in the layout of PEFT; `sample_model.adapter` says what it answers."""
    return Path(__file__).parent / "adapter_weights"
