"""The table of what NxD Inference raises: the tool that writes it, and the rules that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.neuron.checks.neuron_config import RULES
from tests.nxdi_sources.error_table import NONE, TABLE, find_raises, read_rules, rows, table

ROOT = Path(__file__).parents[1]
# These errors come from no statement that reads the key: an IndexError, a TypeError, and divisions in NxD.
UNSAID = {"empty-buckets", "prefix-buckets", "flash-decoding-heads", "mixtral-width"}
CODE = """
class NeuronConfig:
    def __init__(self, **kwargs):
        assert self.cp_degree > 0, "a message"
        if kwargs["flavour"]:
            raise ValueError("of no key")
        elif self.tp_degree < self.batch_size:
            raise IncompatibleConfigError("a message")
"""


def checkout(directory: Path, code: str) -> Path:
    folder = directory / "src" / "neuronx_distributed_inference" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.py").write_text(code)
    return directory


def test_what_a_configuration_reaches_is_listed_by_place_and_key(tmp_path: Path) -> None:
    found = find_raises([checkout(tmp_path, CODE)])
    assert [(one.line, one.where, one.error, one.names) for one in found] == [
        (4, "NeuronConfig.__init__", "assert", ("cp_degree",)),
        (8, "NeuronConfig.__init__", "IncompatibleConfigError", ("batch_size", "tp_degree")),
    ]
    with pytest.raises(FileNotFoundError, match="has none of"):
        find_raises([tmp_path / "elsewhere"])


def test_a_new_release_keeps_the_rules_of_the_places_that_it_keeps(tmp_path: Path) -> None:
    before = table(find_raises([checkout(tmp_path, CODE)]), {}).replace(f"cp_degree | {NONE}", "cp_degree | tp-by-cp")
    moved = CODE.replace("        assert", "        assert self.ep_degree == 1\n        assert", 1)
    after = list(rows(table(find_raises([checkout(tmp_path, moved)]), read_rules(before))))
    assert [(row[1], row[4], row[5]) for row in after] == [
        ("4", "ep_degree", NONE),
        ("5", "cp_degree", "tp-by-cp"),
        ("9", "batch_size, tp_degree", NONE),
    ]


def test_every_rule_in_the_table_is_one_of_ours_and_every_rule_of_ours_is_in_it() -> None:
    named = {row[5] for row in rows(TABLE.read_text(encoding="utf-8"))} - {NONE}
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "handler" / "neuron").rglob("*.py"))
    assert [rule for rule in sorted(named) if f'"{rule}"' not in sources and f"def {rule}(" not in sources] == []
    assert {rule.code for rule in RULES} - named == UNSAID
