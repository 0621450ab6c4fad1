"""The checked-in recipes, read as an endpoint reads them, with the published shapes of their models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.neuron.checkpoint.model_facts import ModelFacts, facts_from

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted(RECIPES.glob("*.yaml"))
MODELS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "published_models.json").read_text(encoding="utf-8")
)


def config_of(path: Path) -> EndpointConfig:
    """The configuration of an endpoint whose one variable is ENDPOINT_CONFIG."""
    return load({"ENDPOINT_CONFIG": str(path)})


def facts_of(model: str) -> ModelFacts:
    """Published facts; the FP8 recipe's /opt/ml/model is a rescaled Llama 3.1 405B."""
    published = MODELS[model]
    return facts_from(published["config"], model, model.startswith("/"), None, published["total_size"])


def draft_of(config: EndpointConfig) -> ModelFacts | None:
    return facts_of(config.speculative_model) if config.speculative_model else None
