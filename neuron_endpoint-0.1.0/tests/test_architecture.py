"""docs/architecture.md names files that exist, folders stay small, and each class name has one meaning."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("container", "handler", "local_sagemaker", "model_packaging", "benchmarks")
MOST_MODULES = 18
PATH = re.compile(r"(?:container|handler|local_sagemaker|model_packaging|benchmarks|tests)/[\w/]*(?:\.py)?")
# Each is the name that another party's interface prescribes, in both places.
SHARED_NAMES: dict[str, str] = {}


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_path_that_the_page_names_exists(page: str) -> None:
    named = set(PATH.findall((ROOT / page).read_text()))
    assert len(named) > 5
    assert not [path for path in sorted(named) if not (ROOT / path).exists()]


def test_no_folder_has_more_than_eighteen_modules() -> None:
    counts = Counter(path.parent for path in modules() if path.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_public_class_name_is_used_for_two_things() -> None:
    places = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED_NAMES}
    assert twice == {}


def test_no_type_is_inspected_by_two_threads_at_once() -> None:
    """msgspec 0.22.0 crashes of that: each class has a decoder at import, or goes through `convert`, which locks."""
    inspected = re.compile(r"msgspec\.convert\(|msgspec\.json\.decode\(.*type=(?!dict\[str, \w+\])")
    places = [
        path
        for folder in ("container", "handler")
        for path in (ROOT / folder).rglob("*.py")
        if inspected.search(path.read_text()) and path.name != "sampling_fields.py"
    ]
    assert places == []


def test_the_layers_are_checked_and_a_circle_fails(tmp_path: Path) -> None:
    """A module of the lowest layer that imports the highest one breaks the contract."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    for package in PACKAGES:
        subprocess.run(["cp", "-r", str(ROOT / package), str(tmp_path)], check=True)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    whole = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert whole.returncode == 0, whole.stdout
    with (tmp_path / "handler" / "json_value.py").open("a") as file:
        file.write("\nimport handler.startup.start\n")
    broken = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert broken.returncode == 1
    assert "handler.json_value" in broken.stdout
