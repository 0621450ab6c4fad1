"""Every fact of the five guides is what its row says: settings are typed and run, cited tests and pages are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cited_tests import source_of
from tests.guides.fact_run import FactRun, has, rejected_field, value_at, write_models
from tests.guides.guide_facts import HERE, Fact, facts, guides
from tests.guides.guide_pages import DOCS, index, page
from tests.model_packaging.command import run

ALL = list(facts())
TYPED, COMMANDS, TESTED = ([fact for fact in ALL if getattr(fact, name)] for name in ("typed", "command", "test"))


def number(fact: Fact) -> str:
    return fact.number


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("guides")
    write_models(found)
    return found


def test_the_guides_are_whole() -> None:
    assert [guide.name for guide in guides()] == [
        "405b-tutorial",
        "inf2-proposal",
        "installation",
        "transformers-neuronx",
        "user-guide",
    ]
    assert len(ALL) >= 312


@pytest.mark.parametrize("fact", ALL, ids=number)
def test_a_fact_is_shown_in_some_way(fact: Fact) -> None:
    assert fact.here in HERE
    assert fact.asks
    shown = (fact.typed, bool(fact.command), bool(fact.test))
    assert sum(shown) == 1
    expected = fact.plan or fact.variables or fact.absent or fact.keys or fact.finding or fact.silent
    assert not fact.typed or expected or fact.request is not None, "its run shows nothing"
    assert not fact.test or fact.names
    if fact.typed and HERE[fact.here] is not None:
        assert fact.finding or fact.param, "what says it?"


@pytest.mark.parametrize("fact", TYPED, ids=number)
def test_its_settings_come_out_as_it_says(fact: Fact, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FactRun(fact, directory)
    _, document = run.run("check")
    # The models have a shape and no weights here.
    findings = [one for one in document["findings"] if one["code"] not in ("model-files", "not-checked")]
    rejected = fact.here == "rejected" and not fact.param
    assert any(one["severity"] == "error" for one in findings) == rejected, findings
    assert not [one for one in findings if one["code"] in fact.silent]
    if fact.finding:
        matching = [one for one in findings if (one["code"], one["setting"]) == (fact.finding, fact.setting)]
        assert matching, findings
        assert matching[0]["fix"]
        assert matching[0]["severity"] == (HERE[fact.here] or "info")
    elif not fact.param:
        assert fact.here == "works", "nothing says it"
    if rejected:
        return
    plan = run.plan()
    assert {name: value_at(plan, name) for name in fact.plan} == dict(fact.plan)
    assert {name: plan.env.get(name) for name in fact.variables} == dict(fact.variables)
    assert not [name for name in fact.absent if has(plan, name) or name in plan.env]
    if fact.keys:
        keys = run.neuron_config(monkeypatch)
        assert {name: keys.get(name, ...) for name in fact.keys} == dict(fact.keys)
    if fact.request is not None:
        assert rejected_field(plan, fact.request) == fact.param


@pytest.mark.parametrize("fact", COMMANDS, ids=number)
def test_its_command_prints_what_it_says(fact: Fact) -> None:
    result = run(*fact.command.split())
    assert result.exit_code == 0
    assert fact.prints in result.output


@pytest.mark.parametrize("fact", TESTED, ids=number)
def test_its_test_is_about_its_setting(fact: Fact) -> None:
    assert fact.names.lower() in source_of(fact.test).lower()


@pytest.mark.parametrize("guide", guides(), ids=lambda guide: guide.name)
def test_its_page_is_that_of_the_facts(guide: object) -> None:
    """After a change: `make docs`."""
    for one in guides():
        assert (DOCS / f"{one.name}.md").read_text(encoding="utf-8") == page(one)


def test_the_index_is_that_of_the_facts() -> None:
    assert (DOCS.parent / "guides.md").read_text(encoding="utf-8") == index()
