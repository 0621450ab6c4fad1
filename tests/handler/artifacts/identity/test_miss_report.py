from __future__ import annotations

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.identity.miss_report import explain
from handler.artifacts.store.manifest import Manifest
from handler.json_value import Json


def fields(compiler: str = "2.26", length: int = 8192, **more: Json) -> dict[str, Json]:
    return {
        "line": "nxdi-0.16",
        "versions": {"neuronx-cc": compiler},
        "model": {"hidden_size": 64},
        "tensors": "aa",
        "engine_args": {"max_model_len": length, "max_num_seqs": 4},
        **more,
    }


def entry(key: str, made_of: dict[str, Json], kind: str = "graph", created: float = 1.0) -> Manifest:
    return Manifest(key * 64, kind, made_of, (), created)


WANTED = ArtifactKey("graph", "f" * 64, fields())


def test_the_sentence_names_the_fields_with_both_values() -> None:
    miss = explain(WANTED, [entry("a", fields("2.25", 4096)), entry("b", {"line": "cpu"})])
    assert miss.nearest == "a" * 64
    assert miss.text() == (
        "No entry for key ffffffffffffffff; the nearest differs in: "
        "neuronx-cc 2.25 -> 2.26, max_model_len 4096 -> 8192."
    )


def test_the_event_has_the_same_as_data() -> None:
    event = explain(WANTED, [entry("a", fields(length=4096))]).event()
    assert event["event"] == "artifact_miss"
    assert event["fields"] == ["max_model_len"]
    assert event["differences"] == [{"field": "max_model_len", "there": "4096", "here": "8192"}]
    assert (event["nearest"], event["entries"]) == ("a" * 64, 1)


def test_the_event_is_short_however_much_differs() -> None:
    many: dict[str, Json] = {f"field {number}": number for number in range(5000)}
    event = explain(WANTED, [entry("a", {**fields(), **many})]).event()
    assert isinstance(event["differences"], list)
    assert len(event["differences"]) == 200
    assert "and 4988 more" in str(event["message"])


def test_an_empty_store_says_so() -> None:
    miss = explain(WANTED, [entry("a", fields(), kind="weights")])
    assert miss.nearest is None
    assert "no graph entries" in miss.text()
    assert miss.event()["entries"] == 0


def test_what_one_side_does_not_have() -> None:
    miss = explain(WANTED, [entry("a", fields(env={"XLA_X": "1"}))])
    assert str(miss.differences[0]) == "XLA_X 1 -> (absent)"
    other = explain(ArtifactKey("graph", "f" * 64, fields(lnc=2)), [entry("a", fields())])
    assert str(other.differences[0]) == "lnc (absent) -> 2"


def test_the_same_model_with_other_settings_is_nearer_than_another_model() -> None:
    another = entry("a", {**fields(), "tensors": "bb"}, created=9.0)
    settings = entry("b", fields("2.25", 4096, lnc=2))
    assert explain(WANTED, [another, settings]).nearest == "b" * 64


def test_of_equally_near_ones_the_newest_is_named() -> None:
    old, new = entry("a", fields("2.25"), created=1.0), entry("b", fields("2.24"), created=2.0)
    assert explain(WANTED, [old, new]).nearest == explain(WANTED, [new, old]).nearest == "b" * 64


def test_a_name_that_two_groups_have_keeps_its_group() -> None:
    there = fields(neuron_config={"max_num_seqs": 1})
    here = ArtifactKey("graph", "f" * 64, fields(neuron_config={"max_num_seqs": 2}))
    assert [item.field for item in explain(here, [entry("a", there)]).differences] == ["neuron_config.max_num_seqs"]


def test_true_is_not_the_word_for_it_and_many_differences_are_cut_short() -> None:
    there = fields(neuron_config={f"k{number}": number for number in range(20)})
    here = ArtifactKey("graph", "f" * 64, fields(neuron_config={f"k{number}": True for number in range(20)}))
    text = explain(here, [entry("a", there)]).text()
    assert "k0 0 -> true" in text
    assert "and 8 more" in text
