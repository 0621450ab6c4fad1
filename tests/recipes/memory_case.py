"""Configurations whose memory was measured on NxD Inference's own modules.

tests/nxdi_sources/memory_facts.py writes the file of numbers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.instance_catalogue import InstanceType, find
from tests.recipes.recipe_files import RECIPES, config_of, draft_of, facts_of

RANK_BYTES = Path(__file__).with_name("rank_bytes.json")


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """A recipe, by its name, or a model and the fields of an endpoint's configuration."""

    name: str
    instance: str
    model: str = ""
    settings: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """The fields that are set, as JSON."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def config(self) -> EndpointConfig:
        if self.settings is None:
            return config_of(RECIPES / f"{self.name}.yaml")
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in self.settings.items()
        }
        return EndpointConfig(model=self.model, **fields)

    @property
    def facts(self) -> ModelFacts:
        model = self.config.model
        assert model is not None
        return facts_of(model)

    @property
    def draft(self) -> ModelFacts | None:
        return draft_of(self.config)

    @property
    def type(self) -> InstanceType:
        found = find(self.instance)
        assert found is not None
        return found


def measured() -> list[tuple[MemoryCase, dict[str, int]]]:
    """The cases of the file, with the bytes of weights and KV cache on one rank."""
    document = json.loads(RANK_BYTES.read_text(encoding="utf-8"))
    return [(MemoryCase(**row["case"]), row["bytes"]) for row in document["cases"]]
