"""On a Neuron line the adapters of the start are listed, and no other is taken."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.engine.adapters.adapter_errors import AdapterRequired, AdaptersUnsupported
from handler.engine.adapters.adapters import Adapters
from handler.neuron.engine_plan import EnginePlan
from handler.startup.adapter_loading import load_adapters

LORA = SimpleNamespace(max_loras=2, max_lora_rank=16)


class ScriptedEngine:
    """An engine that was started with LoRA. Only the table of its adapters is real."""

    def __init__(self) -> None:
        self.facts = SimpleNamespace(adapters=(2, 16))
        self._llm = SimpleNamespace(facts=self.facts, lora_request=lambda *named: None)
        self.adapters: Any = None

    def with_adapters(self, directory: Path, limit: int, bring: Any) -> Adapters:
        adapters = Adapters(self._llm, SimpleNamespace(), ("model",), directory, limit, bring)  # type: ignore[arg-type]
        self.adapters = adapters
        return adapters


@pytest.mark.parametrize("line", ["nxdi-0.16", "native-0.29", "fork-0.9.1"])
def test_a_neuron_line_has_the_adapters_of_its_start(line: str, tmp_path: Path) -> None:
    engine, config = ScriptedEngine(), EndpointConfig(scratch=tmp_path, lora_modules={"sql": "/adapters/sql"})
    load_adapters(engine, EnginePlan(line, {}), config, {}, lambda stage: None)  # type: ignore[arg-type]
    assert engine.adapters.names() == ("sql",)
    assert engine.adapters.begin("sql").running == 1
    if line.startswith("nxdi"):  # its plugin ends its engine at a request without an adapter
        for name in (None, "", "model"):
            with pytest.raises(AdapterRequired) as error:
                engine.adapters.begin(name)
            assert (error.value.status, error.value.param) == (400, "model")
    for change in (partial(engine.adapters.load, "law", "/adapters/law"), partial(engine.adapters.unload, "sql")):
        with pytest.raises(AdaptersUnsupported, match="only at the start") as caught:
            change()
        assert caught.value.status == 501
    assert engine.adapters.names() == ("sql",)
