"""An adapter's files: what is copied, and what is refused before the engine sees it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

import sample_model
from handler.engine.adapters.adapter_checkpoint import copy_checked, write_empty_adapter
from handler.engine.adapters.adapter_errors import InvalidAdapter
from handler.neuron.checkpoint.adapter_files import CONFIG, WEIGHTS

RANK = 8


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_model.adapter_path(), tmp_path / "adapter"))


def refused(adapter: Path, max_rank: int = 16) -> str:
    target = adapter.parent / "target"
    with pytest.raises(InvalidAdapter) as caught:
        copy_checked("mine", adapter, target, max_rank)
    assert not target.exists()
    assert caught.value.status == 400
    assert "'mine'" in caught.value.message
    return caught.value.message


def test_the_two_files_are_copied_and_nothing_else(adapter: Path) -> None:
    (adapter / "README.md").write_text("not needed")
    target = adapter.parent / "deep" / "target"
    copy_checked("mine", adapter, target, RANK)
    assert sorted(file.name for file in target.iterdir()) == [CONFIG, WEIGHTS]
    assert (target / WEIGHTS).read_bytes() == (adapter / WEIGHTS).read_bytes()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"r": 17}, "above 16"),
        ({"r": 4}, "the rank in adapter_model.safetensors is"),
        ({"r": True}, "no rank"),
        ({"r": None}, "no rank"),
        ({"lora_alpha": "16"}, "lora_alpha"),
        ({"target_modules": None}, "target_modules"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"peft_type": "IA3"}, "peft_type"),
    ],
)
def test_a_configuration_that_cannot_be_served(adapter: Path, change: dict[str, Any], says: str) -> None:
    config = json.loads((adapter / CONFIG).read_text())
    (adapter / CONFIG).write_text(json.dumps({**config, **change}))
    assert says in refused(adapter)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b" " * 2_000_000])
def test_a_configuration_that_is_none(adapter: Path, text: bytes) -> None:
    (adapter / CONFIG).write_bytes(text)
    assert CONFIG in refused(adapter)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:100],
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: (2).to_bytes(8, "little") + b"{}",
        lambda data: (4).to_bytes(8, "little") + b"null",
        lambda data: (13).to_bytes(8, "little") + b'{"a":{"b":1}}',
    ],
)
def test_weights_that_are_none(adapter: Path, change: Any) -> None:
    weights = adapter / WEIGHTS
    weights.write_bytes(change(weights.read_bytes()))
    assert WEIGHTS in refused(adapter)


def test_a_pickle_is_not_taken(adapter: Path) -> None:
    (adapter / WEIGHTS).rename(adapter / "adapter_model.bin")
    assert "pickle" in refused(adapter)


def test_a_model_is_no_adapter() -> None:
    with pytest.raises(InvalidAdapter, match=r"a model's config\.json"):
        copy_checked("mine", sample_model.path(), Path("/nowhere/target"), RANK)


def test_the_adapter_of_nothing_is_zeros_of_the_model_s_shape(tmp_path: Path) -> None:
    model = Path(shutil.copytree(sample_model.path(), tmp_path / "model"))
    (model / "._model.safetensors").write_bytes(bytes(100))  # as macOS puts beside it, and vLLM passes over
    assert write_empty_adapter(model, tmp_path / "nothing")
    copy_checked("nothing", tmp_path / "nothing", tmp_path / "copy", 1)
    with safe_open(tmp_path / "copy" / WEIGHTS, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  it is no mapping
    first, second = (next(tensor for name, tensor in tensors.items() if part in name) for part in ("lora_A", "lora_B"))
    assert first.shape[0] == second.shape[1] == 1
    assert not any(tensor.any() for tensor in tensors.values())


def test_a_model_without_a_known_module_has_no_adapter_of_nothing(tmp_path: Path) -> None:
    assert not write_empty_adapter(tmp_path, tmp_path / "nothing")
