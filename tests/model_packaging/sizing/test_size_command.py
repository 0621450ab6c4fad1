"""`neuron-endpoint size`: rates on an instance, all instances for a load; and what `check` predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.model_packaging.command import run, told
from tests.model_packaging.sizing.published_figures import published
from tests.small_model import write_small_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Llama 3 8B, with weights of zeros that take no room."""
    return write_small_model(
        tmp_path_factory.mktemp("llama"), **{"max_position_embeddings": None, **published()["models"]["Llama-3-8B"]}
    )


def test_more_requests_at_a_time_make_more_tokens_and_slower_ones(llama: Path) -> None:
    one, many = told("size", llama, "--instance", "ml.inf2.48xlarge", "--batch", "1,32")["predictions"]
    assert many["tokens_per_second"] > one["tokens_per_second"]
    assert many["between_tokens_seconds"] > one["between_tokens_seconds"]
    assert one["cost_per_million_tokens"] == pytest.approx(5.608 / 3600 / one["tokens_per_second"] * 1e6, rel=0.01)
    assert one["memory"] == "fits"


def test_the_degree_the_lengths_and_the_price_count(llama: Path) -> None:
    words = ("size", llama, "--instance", "trn2.48xlarge", "--batch", "1")
    (whole,) = told(*words, "--tp", "32")["predictions"]
    (quarter,) = told(*words, "--tp", "8", "--price", "trn2.48xlarge=40")["predictions"]
    (long,) = told(*words, "--tp", "32", "--input-tokens", "8000")["predictions"]
    assert whole["between_tokens_seconds"] < quarter["between_tokens_seconds"]
    assert whole["first_token_seconds"] < long["first_token_seconds"]
    assert (whole["price_per_hour"], quarter["price_per_hour"]) == (None, 40)
    assert run(*words).stdout.count("no price") == 1


def test_the_cheapest_comes_first_and_the_rest_says_why_not(llama: Path, tmp_path: Path) -> None:
    words = ("--requests", "5", "--tpot", "0.03", "--ttft", "2")
    options = told("size", llama, *words)["options"]
    costs = [option["cost_per_hour"] for option in options if option["cost_per_hour"] is not None]
    assert costs == sorted(costs)
    assert len(costs) > 1
    assert {option["instance"] for option in options} >= {"trn2.48xlarge", "inf2.48xlarge", "trn1.32xlarge"}
    for option in options:
        if option["why_not"]:
            continue
        assert option["between_tokens_seconds"] <= 0.03
        assert option["first_token_seconds"] <= 2
        assert option["instances"] * option["tokens_per_second"] * 0.7 >= 5 * 256 * 0.99
    refused = {option["instance"]: option["why_not"] for option in options if option["why_not"]}
    assert "ms a token at best" in refused["inf2.xlarge"]
    assert "does not fit" in run("size", llama, *words).stdout
    settings = tmp_path / "endpoint.yaml"
    settings.write_text("instance: ml.inf2.48xlarge\n")
    assert len(told("size", llama, *words, "--config", settings)["options"]) == len(options)


def test_prices_of_two_kinds_are_not_compared_and_the_kind_is_said(llama: Path) -> None:
    words = ("size", llama, "--requests", "5")
    sources = {option["instance"]: option.get("price_source") for option in told(*words)["options"]}
    assert (sources["inf2.48xlarge"], sources["trn2.48xlarge"]) == ("EC2, reserved", None)
    assert "EC2's rates of reserved instances, not at SageMaker's" in " ".join(run(*words).stdout.split())
    own = (*words, "--price", "trn2.48xlarge=40")
    first, *others = [option for option in told(*own)["options"] if not option["why_not"]]
    assert (first["instance"], first["price_source"]) == ("trn2.48xlarge", "--price")
    assert {option["cost_per_hour"] for option in others} == {None}
    assert "reserved" not in run(*own).stdout
    for price, said in (((), True), (("--price", "16"), False)):
        assert ("reserved" in run("size", llama, "--instance", "inf2.48xlarge", *price).stdout) is said


def test_an_instance_that_may_not_load_the_model_comes_last_with_the_warning_of_check(llama: Path) -> None:
    words = ("size", llama, "--requests", "3")
    fitting = [option for option in told(*words)["options"] if not option["why_not"]]
    assert fitting[-1]["instance"] == "inf2.xlarge"
    assert fitting[-1]["cost_per_hour"] < fitting[0]["cost_per_hour"]
    assert [option["warnings"][0]["code"] for option in fitting if option["warnings"]] == ["host-memory"]
    for asked in (words, ("size", llama, "--instance", "inf2.xlarge", "--batch", "1")):
        said = " ".join(run(*asked).stdout.split())
        assert "Warning (inf2.xlarge): inf2.xlarge has 16 GiB of host memory, but loading" in said


def test_the_warnings_of_check_are_below_the_table(llama: Path, tmp_path: Path) -> None:
    model = json.loads((llama / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**model, "max_position_embeddings": 1024}))
    said = " ".join(run("size", tmp_path, "--instance", "inf2.48xlarge").stdout.split())
    assert said.count("Warning (inf2.48xlarge): the model was trained for 1024 tokens, not 1280") == 1


def test_a_model_that_is_too_large_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({**published()["models"]["Llama-3.1-405B"], "torch_dtype": "bfloat16"})
    )
    result = run("size", tmp_path, "--requests", "1", "--json")
    why = {option["instance"]: option["why_not"] for option in json.loads(result.stdout)["options"]}
    assert why["trn2.48xlarge"] is None
    assert why["inf2.48xlarge"].startswith("memory: ")


def test_with_lnc_1_twice_the_cores_are_looked_at(tmp_path: Path) -> None:
    """Llama 3.1 405B has 128 heads; here are some of its layers."""
    (tmp_path / "config.json").write_text(
        json.dumps({**published()["models"]["Llama-3.1-405B"], "torch_dtype": "bfloat16", "num_hidden_layers": 60})
    )
    words = (
        "size",
        tmp_path,
        "--requests",
        "1",
        "--instance",
        "trn2.48xlarge",
        "--batch",
        "1",
        "--line",
        "nxdi-0.16",
        "--config",
    )
    degrees = [
        told(*words, json.dumps({"logical_nc_config": lnc}))["options"][0]["tensor_parallel_size"] for lnc in (1, 2)
    ]
    assert degrees == [128, 64]


def test_the_draft_and_the_overrides_count_as_for_check(llama: Path) -> None:
    def rates(line: str, instance: str, **settings: Any) -> dict[str, Any]:
        text = json.dumps({"line": line, **settings})
        words = ("size", llama, "--config", text, "--instance", instance, "--batch", "16")
        predicted: dict[str, Any] = told(*words, "--input-tokens", "6000")["predictions"][0]
        return predicted

    draft = {"speculative_model": str(llama), "num_speculative_tokens": 5}
    alone = rates("nxdi-0.16", "ml.inf2.24xlarge", tensor_parallel_size=4)
    drafted = rates("nxdi-0.16", "ml.inf2.24xlarge", tensor_parallel_size=4, speculation="draft_model", **draft)
    assert (alone["memory"], drafted["memory"]) == ("fits", "does not fit")
    whole, short = (
        rates("native-0.29", "ml.trn2.48xlarge", engine_args={"hf_overrides": {"num_hidden_layers": layers}})
        for layers in (32, 4)
    )
    assert short["between_tokens_seconds"] < whole["between_tokens_seconds"] / 2


def test_check_says_what_the_plan_should_reach(llama: Path) -> None:
    words = ("check", llama, "--instance", "ml.inf2.48xlarge")
    one, many = told(*words)["predictions"]
    assert (one["batch"], many["batch"]) == (1, 32)
    said = " ".join(run(*words).stdout.split())
    assert f"{many['tokens_per_second']:,.0f} tokens/s" in said
    assert "Predicted, not measured, for one request at a time" in said


def test_check_predicts_nothing_without_an_instance_or_a_shape(llama: Path, tmp_path: Path) -> None:
    assert told("check", llama)["predictions"] == []


@pytest.mark.parametrize(
    ("line", "instance", "argument", "why"),
    [
        ("native-0.29", "trn2.48xlarge", "runner: pooling", "generates no tokens"),
        ("native-0.29", "trn2.48xlarge", "data_parallel_size: 4", "one engine is predicted"),
        ("nxdi-0.16", "trn2.48xlarge", "neuron_config: {pp_degree: 2}", "pipeline stages"),
        ("native-0.29", "trn3.48xlarge", "", "the rates of trn3 are not known"),
    ],
)
def test_what_the_roofline_does_not_know_is_not_predicted(
    llama: Path, tmp_path: Path, line: str, instance: str, argument: str, why: str
) -> None:
    settings = tmp_path / "endpoint.yaml"
    words = (llama, "--line", line, "--config", settings, "--instance")
    settings.write_text("tensor_parallel_size: 8\n")
    assert told("check", *words, "trn2.48xlarge")["predictions"]
    settings.write_text(f"tensor_parallel_size: 8\n{argument}\n")
    assert json.loads(run("check", *words, instance, "--json").stdout)["predictions"] == []
    assert why in " ".join(run("size", *words, instance).stderr.split())
    (option,) = json.loads(run("size", *words, instance, "--requests", "1", "--json").stdout)["options"]
    assert why in option["why_not"]


def test_one_instance_can_be_asked_for(llama: Path) -> None:
    words = ("size", llama, "--requests", "100", "--tp", "8", "--tpot", "0.02")
    (only,) = told(*words, "--instance", "ml.inf2.48xlarge")["options"]
    assert only in told(*words)["options"]
    assert only["instances"] == -(-100 * 256 // (only["tokens_per_second"] * 0.7))
    assert only["cost_per_hour"] == pytest.approx(5.608 * only["instances"], abs=0.01)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("meta-llama/nowhere", "--instance", "inf2.xlarge"), 1, "is not on this machine"),
        (("{model}",), 2, "Give --instance"),
        (("{model}", "--tpot", "1"), 2, "--tpot needs --requests"),
        (("{model}", "--graphs", "4"), 2, "--graphs needs --log"),
        (("{model}", "--requests", "1", "--log", "trace:chat"), 2, "Give --log or --requests"),
        (("{model}", "--requests", "1", "--price", "40"), 2, "INSTANCE=PRICE"),
        (("{model}", "--requests", "1", "--price", "trn2.48xlarg=40"), 2, "--price: 'trn2.48xlarg' is not an instance"),
        (("{model}", "--requests", "0"), 2, "--requests: it must be above 0"),
        (("{model}", "--requests", "1", "--output-tokens", "0"), 2, "--output-tokens: 0 is out of range"),
        (("{model}", "--requests", "1", "--use", "1.5"), 2, "--use: it is a share"),
        (("{model}", "--instance", "inf2.xlarge", "--batch", "many"), 2, "no list of numbers"),
        (("{model}", "--instance", "inf2.xlarge", "--batch", "0"), 2, "out of range"),
        (("{model}", "--instance", "inf2.xlarge", "--price", "much"), 2, "[INSTANCE=]PRICE"),
        (("{model}", "--instance", "p5.48xlarge"), 2, "is not an instance with Neuron cores"),
        (("{model}", "--instance", "inf2.xlarge", "--tp", "8"), 1, "tensor_parallel_size"),
    ],
)
def test_a_wrong_question_gets_the_fix(llama: Path, words: tuple[str, ...], status: int, text: str) -> None:
    result = run("size", *(str(llama) if word == "{model}" else word for word in words))
    assert result.exit_code == status
    assert text in " ".join(result.stderr.split())
