"""The plan of each recipe, as `neuron-endpoint plan --json` prints it; committed in plans/, to be held against vLLM and
NxD Inference elsewhere. `make plans` (or `python -m tests.recipes.golden_plans`) writes them anew.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from click.testing import CliRunner

from tests.recipes.recipe_files import FILES, MODELS

PLANS = Path(__file__).parent / "plans"
# The rescaled FP8 checkpoint that a recipe has at /opt/ml/model goes by a name here.
LOCAL = {"/opt/ml/model": "llama-3.1-405b-fp8-rescaled"}


@contextmanager
def published_models() -> Iterator[None]:
    """A working directory in which the recipes' models are: their JSON files, without weights.

    They go by their hub ids, and those in S3 by the last part of their names.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        for name in MODELS:
            key = name.rpartition("/")[2] if name.startswith("s3:") else LOCAL.get(name, name)
            place = Path(directory, key)
            place.mkdir(parents=True)
            (place / "config.json").write_text(json.dumps(MODELS[name]["config"]))
            index = {"metadata": {"total_size": MODELS[name]["total_size"]}, "weight_map": {}}
            (place / "model.safetensors.index.json").write_text(json.dumps(index))
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(before)


def plan_of(recipe: Path) -> str:
    """What the command prints."""
    from model_packaging.cli import main

    model = yaml.safe_load(recipe.read_text(encoding="utf-8"))["model"]
    result = CliRunner().invoke(main, ["plan", "--json", "--config", str(recipe), LOCAL.get(model, model)])
    if result.exit_code:
        raise SystemExit(f"{recipe.name}: {result.output}")
    return result.stdout


def write() -> None:
    """Writes every plan, and removes those of recipes that are gone."""
    PLANS.mkdir(exist_ok=True)
    for old in PLANS.glob("*.json"):
        old.unlink()
    with published_models():
        for recipe in FILES:
            document = json.loads(plan_of(recipe))
            (PLANS / f"{recipe.stem}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
