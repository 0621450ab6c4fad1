"""vLLM looks at a model's class without another Python."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(("model", "generates"), [("LlamaForCausalLM", True), ("BertModel", False)])
def test_a_new_container_starts_no_python_for_it(
    model: str, generates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.model_executor.models import registry

    from handler.engine.engine_client import model_inspection

    inspect = registry._LazyRegisteredModel.inspect_model_cls
    monkeypatch.setattr(registry._LazyRegisteredModel, "inspect_model_cls", inspect)  # restores it afterwards
    monkeypatch.setattr(registry, "subprocess", SimpleNamespace(run=lambda *_, **__: pytest.fail("another Python")))
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))  # nothing is cached
    model_inspection.inspect_here()
    model_inspection.inspect_here()  # of a second engine
    assert registry.ModelRegistry.models[model].inspect_model_cls().is_text_generation_model is generates
    assert list(tmp_path.rglob("*.json")), "the core's process finds it"
