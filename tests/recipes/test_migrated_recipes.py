"""`neuron-endpoint migrate` on the recipes for NxD Inference, and `check` on what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.model_packaging.command import run
from tests.recipes.golden_plans import LOCAL, published_models
from tests.recipes.recipe_files import FILES

LINE = "native-0.29"
TRN2 = [path for path in FILES if "trn2" in path.stem and "nxdi" in yaml.safe_load(path.read_text())["line"]]
every_recipe = pytest.mark.parametrize("path", TRN2, ids=lambda path: path.stem)
# The recipes whose models need other weights, or are not in the plugin: the errors that say so.
REMAINING = {
    "llama-4-scout-trn2.48xlarge": {"unsupported-model", "indivisible-heads"},
    "llama-3.1-405b-fp8-trn2.48xlarge": {"checkpoint-quantization"},
}


def invoke(*words: str) -> tuple[int, dict[str, Any]]:
    result = run(words[0], "--json", *words[1:])
    return result.exit_code, json.loads(result.stdout)


def errors(report: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in report["findings"] if finding["severity"] == "error"}


@every_recipe
def test_the_document_passes_the_check_or_what_is_missing_is_named(path: Path, tmp_path: Path) -> None:
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    model, written = LOCAL.get(recipe["model"], recipe["model"]), str(tmp_path / "native.yaml")
    with published_models():
        _, report = invoke("migrate", "--config", str(path), "--output", written, model)
        code, checked = invoke("check", "--line", LINE, "--config", written, model)
    assert errors(checked) - {"model-files"} == errors(report) == REMAINING.get(path.stem, set())
    assert code == 1, "the models have no weights here"
    assert yaml.safe_load(Path(written).read_text()) == yaml.safe_load(report["document"])
    assert yaml.safe_load(report["document"])["line"] == LINE


@every_recipe
def test_every_setting_has_one_row(path: Path, tmp_path: Path) -> None:
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    with published_models():
        _, report = invoke("migrate", "--config", str(path), LOCAL.get(recipe["model"], recipe["model"]))
    nested = ("neuron_config", "text_neuron_config", "vision_neuron_config", "engine_args", "neuron_env")
    wanted = {key for key in recipe if key not in nested} | set(recipe.get("neuron_env", {}))
    wanted |= {f"{section}.{key}" for section in nested[:4] for key in recipe.get(section, {})}
    rows = [row["setting"] for row in report["settings"]]
    assert len(rows) == len(set(rows))
    found = set(rows)
    lost = {name for name in wanted if not any(row == name or row.startswith(f"{name}.") for row in found)}
    assert not lost
