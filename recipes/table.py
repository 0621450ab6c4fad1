"""Prints the table of recipes/README.md: `python recipes/table.py`."""

from __future__ import annotations

from pathlib import Path

import yaml

RECIPES = Path(__file__).parent
COLUMNS = ("recipe", "model", "instance", "line", "cores", "context", "sequences", "with")
FEATURES = {
    "quantization": "{} weights",
    "speculation": "{} speculation",
    "disaggregation": "{} half of disaggregated inference",
    "vision_neuron_config": "images",
    "attn_kernel_enabled": "kernels",
}


def row(path: Path) -> tuple[str, ...]:
    """One recipe's cells."""
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    text = recipe.get("text_neuron_config", {})
    features = [words.format(str(recipe[key]).replace("_", " ")) for key, words in FEATURES.items() if recipe.get(key)]
    model = path.name.rpartition("-")[0] if recipe["model"].startswith("/") else recipe["model"]
    return (
        f"[{path.stem}]({path.name})",
        model,
        recipe["instance"],
        recipe["line"],
        str(recipe.get("tensor_parallel_size") or text["tp_degree"]),
        str(recipe["max_model_len"]),
        str(recipe["max_num_seqs"]),
        ", ".join(features),
    )


def table() -> str:
    """The whole table, a line for each recipe, sorted by name."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(row(path) for path in sorted(RECIPES.glob("*.yaml")))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


if __name__ == "__main__":
    print(table(), end="")
