"""`neuron-endpoint size --log`: what it saves on published traces and on our own log, and that its document holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import sample_model
from model_packaging.sizing.bucket_choice import computed_tokens
from model_packaging.sizing.request_log import published_traces
from tests.model_packaging.command import run

NXDI = {"line": "nxdi-0.16", "instance": "ml.inf2.24xlarge", "tensor_parallel_size": 8}
# The log of this container under the requests of `benchmarks serving`: 1, 8 and 32 at a time, and 8 with long prompts.
BENCH_LOG = Path(__file__).with_name("bench_log.jsonl")
LENGTHS = {"prompt_tokens": 99, "output_tokens": 9}
NATIVE = {"line": "native-0.29", "instance": "ml.trn2.48xlarge", "tensor_parallel_size": 8}


def tuned(tmp_path: Path, log: object, settings: dict[str, Any], *words: object) -> dict[str, Any]:
    config = tmp_path / "today.yaml"
    config.write_text(yaml.safe_dump({"model": "meta-llama/Llama-3.1-8B-Instruct", **settings}))
    result = run("size", "--config", config, "--json", *words, "--log", log)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def saved(found: dict[str, Any], phase: str) -> float:
    now, then = found["today"][phase]["padding"], found["proposed"][phase]["padding"]
    assert found["today"][phase]["asked"] == found["proposed"][phase]["asked"]
    return 1 - float(then) / float(now)


@pytest.mark.parametrize("length", [4096, 8192])
@pytest.mark.parametrize("name", [*published_traces(), "bench"])
def test_a_third_of_the_padding_is_saved_with_as_many_buckets(tmp_path: Path, name: str, length: int) -> None:
    log = BENCH_LOG if name == "bench" else f"trace:{name}"
    found = tuned(tmp_path, log, {**NXDI, "max_model_len": length})
    for phase in ("prefill", "decode"):
        key = f"{phase}_buckets"
        assert len(found["proposed"][key]) <= len(found["today"][key])
        assert found["today"][key][:2] == [128, 256]  # the line's own
        assert saved(found, phase) >= 0.3


@pytest.mark.parametrize("name", published_traces())
def test_the_native_line_saves_prefill_padding_and_reads_less_context(tmp_path: Path, name: str) -> None:
    found = tuned(tmp_path, f"trace:{name}", {**NATIVE, "max_model_len": 8192})
    assert saved(found, "prefill") >= 0.3
    assert (found["today"]["decode_buckets"], found["today"]["graphs"]) == ([8192], 7)
    found = tuned(tmp_path, f"trace:{name}", {**NATIVE, "max_model_len": 8192}, "--graphs", 13)
    assert (len(found["proposed"]["decode_buckets"]), found["proposed"]["graphs"]) == (2, 13)
    assert saved(found, "decode") >= 0.3


@pytest.mark.parametrize("settings", [NXDI, NATIVE], ids=["nxdi", "native"])
def test_the_document_passes_check_and_differs_in_the_named_fields_only(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings = {**settings, "max_model_len": 4096, "max_num_seqs": 16, "dtype": "bfloat16"}
    found = tuned(tmp_path, "trace:code", settings)
    document = yaml.safe_load(found["document"])
    before = yaml.safe_load((tmp_path / "today.yaml").read_text())
    differing = {name for name in {*document, *before} if document.get(name) != before.get(name)}
    assert differing == set(found["changed"])
    assert differing <= {"context_encoding_buckets", "token_generation_buckets", "neuron_config"}
    tuned_file = tmp_path / "tuned.yaml"
    tuned_file.write_text(found["document"])
    check = run("check", "--config", tuned_file, "--json", before["model"])
    errors = [one for one in json.loads(check.stdout)["findings"] if one["severity"] == "error"]
    assert (check.exit_code, errors) == (5, []), "the model is on the hub, and not looked at"


def test_long_prompts_get_the_best_segment(tmp_path: Path) -> None:
    found = tuned(tmp_path, "trace:chat", {**NATIVE, "max_model_len": 32768})
    assert found["today"]["segmented"]
    assert found["proposed"]["prefill_buckets"] == [512]
    assert found["changed"]["neuron_config"]["proposed"] == {"kv_segment_size_buckets": [512]}


def test_sequences_and_batches_are_those_that_ran(tmp_path: Path) -> None:
    """Nine requests at a time, or three: a line every second, and each ran for nine seconds or three."""
    log = tmp_path / "log.jsonl"
    lines = [
        {
            "time": f"2026-11-23T0{hour}:{at // 60:02}:{at % 60:02}Z",
            "prompt_tokens": 99,
            "output_tokens": 9,
            "seconds": ran,
        }
        for hour, ran in ((7, 9.0), (9, 3.0))
        for at in range(3000)
    ]
    log.write_text("\n".join(map(json.dumps, lines)))
    found = tuned(tmp_path, log, {**NATIVE, "max_model_len": 1024, "max_num_seqs": 64})
    most = found["proposed"]["batch_buckets"][-1]
    assert (most, {3, 9} <= set(found["proposed"]["batch_buckets"])) == (9, True)
    assert found["changed"]["max_num_seqs"]["proposed"] == most
    assert found["changed"]["neuron_config"]["proposed"]["num_seqs_buckets"] == found["proposed"]["batch_buckets"]
    today, proposed = (found[one]["sequences_computed_for_each"] for one in ("today", "proposed"))
    assert 1 <= proposed <= today


def test_the_limit_of_graphs_holds_and_more_graphs_save_more(tmp_path: Path) -> None:
    computed = []
    for graphs in (4, 8, 16):
        found = tuned(tmp_path, "trace:summarization", {**NXDI, "max_model_len": 4096}, "--graphs", graphs)
        assert found["proposed"]["graphs"] <= graphs
        computed.append(found["proposed"]["prefill"]["computed"])
    assert computed[0] > computed[1] > computed[2]


def test_the_promise_counts_each_request(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("prompt_tokens,output_tokens\n" + "100,5\n" * 3 + "128,2\n")
    found = tuned(tmp_path, log, {**NXDI, "max_model_len": 1024})
    # An input is shorter than its bucket on NxD Inference: 128 tokens take the bucket of 256.
    assert found["today"]["prefill"] == {"asked": 428, "computed": 3 * 128 + 256, "padding": 212}
    assert found["today"]["decode"]["computed"] == 3 * 4 * 128 + 256
    assert computed_tokens({101: 3, 129: 1}, found["proposed"]["prefill_buckets"]) == 3 * 128 + 160


def test_the_limit_of_the_first_token_is_kept_or_an_error(tmp_path: Path) -> None:
    words = ("--line", "nxdi-0.16", "--instance", "ml.inf2.xlarge", "--log", "trace:code", sample_model.path())
    assert run("size", "--ttft", "10", *words).exit_code == 0
    result = run("size", "--ttft", "0.01", *words)
    assert result.exit_code == 2
    assert "has its first token after" in " ".join(result.stderr.split())


def test_the_plot_and_the_tables(tmp_path: Path) -> None:
    plot, output = tmp_path / "plot.svg", tmp_path / "tuned.yaml"
    words = ("--line", "nxdi-0.16", "--instance", "ml.inf2.xlarge", "--plot", plot, "--output", output)
    result = run("size", *words, "--log", "trace:code", sample_model.path())
    assert result.exit_code == 0, result.output
    assert "Padding saved: " in result.stdout
    assert "memory of a core" in result.stdout
    assert "context_encoding_buckets" in output.read_text()
    for text in ("share of padding changes: prefill", "today: ", "proposed: "):
        assert text in plot.read_text(), "svg keeps texts as comments"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--line", "cpu", "--log", "trace:chat", "m"), "has no list of buckets"),
        (("--line", "nxdi-0.16", "--log", "trace:none", "m"), "Use one of chat, code, summarization"),
        (("--line", "nxdi-0.16", "--log", "/nowhere/log", "m"), "cannot be read"),
    ],
)
def test_what_cannot_be_tuned_is_an_error_that_tells_the_fix(words: tuple[str, ...], text: str) -> None:
    result = run("size", *words)
    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())
