"""`neuron-endpoint generate` answers the prompts of a file by an engine of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress, TaskID

import sample_model
from handler.startup.serving_state import ServingState
from model_packaging.generate import batch_lines
from tests.container.scripted_engine import ScriptedEngine
from tests.handler.loops import end_loop
from tests.model_packaging.command import run

GREEDY = {"prompt": "Question: 1 + 1?\nAnswer:", "max_tokens": 8, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
ROW = {"custom_id": "mine", "method": "POST", "url": "/v1/completions", "body": GREEDY}


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.engine
def test_texts_bodies_and_lines_of_a_batch_are_answered_in_their_order(tmp_path: Path) -> None:
    prompts = write(tmp_path / "prompts.jsonl", [GREEDY, '"Hello"', "", ROW, {**GREEDY, "temperature": -1}])
    settings, output = tmp_path / "endpoint.env", tmp_path / "replies.jsonl"
    settings.write_text("SM_VLLM_MAX_MODEL_LEN=512\nSM_VLLM_MAX_NUM_SEQS=4\nSM_VLLM_ENFORCE_EAGER=true\n")
    command: list[str | Path] = [Path(sys.executable).with_name("neuron-endpoint"), "generate", sample_model.path()]
    command += ["--prompts", prompts, "--output", output, "--env-file", settings]
    environ = {**os.environ, "ENDPOINT_SCRATCH": str(tmp_path / "scratch")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done.stderr
    assert "Without an answer: 5." in done.stderr
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["custom_id"] for row in rows] == ["1", "2", "mine", "5"]
    assert [row["response"]["status_code"] for row in rows] == [200, 200, 200, 400]
    texts = [row["response"]["body"]["choices"][0]["text"] for row in rows[:3]]
    assert texts[0] == texts[2] != ""
    assert "temperature" in rows[3]["response"]["body"]["error"]["message"]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["{"], "line 1"),
        ([GREEDY, CHAT], "line 2: 'url'"),
        ([ROW, ROW], "'custom_id' 'mine' is on two lines"),
        ([{**ROW, "method": "GET"}], "line 1: 'method'"),
        ([], "no lines"),
    ],
    ids=str,
)
def test_a_line_that_cannot_be_used_is_named_before_an_engine_starts(
    lines: list[Any], problem: str, tmp_path: Path
) -> None:
    prompts = write(tmp_path / "prompts.jsonl", lines)
    words = ["generate", "/nowhere", "--prompts", str(prompts), "--output", str(tmp_path / "replies.jsonl")]
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert problem in " ".join(result.output.split())
    assert not (tmp_path / "replies.jsonl").exists()


@pytest.mark.parametrize("prompt", [["/v1/chat/completions"], "/v1/embeddings"])
def test_a_prompt_that_is_the_name_of_a_route_is_a_prompt(prompt: Any) -> None:
    content, endpoint = batch_lines(json.dumps(prompt).encode())
    assert (json.loads(content)["body"], endpoint) == ({"prompt": prompt}, "/v1/completions")


def test_settings_that_cannot_work_are_named(tmp_path: Path) -> None:
    prompts = write(tmp_path / "prompts.jsonl", [GREEDY])
    words = ["generate", "--prompts", str(prompts), "--output", str(tmp_path / "replies.jsonl")]
    result = run(*words, "--line", "fork-0.7.2", sample_model.path())
    assert result.exit_code == 1
    assert "fork-0.7.2 is a line for plans only" in result.output


def test_after_an_interruption_the_file_has_the_replies_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(state: ServingState) -> None:
        state.engine = engine = ScriptedEngine(state.loop)  # type: ignore[assignment]  # a stand-in
        engines.append(engine)
        state.lifecycle.ready()

    def interrupted_after_one(self: Progress, task: TaskID, *, completed: int | None = None, **more: Any) -> None:
        if completed:
            raise KeyboardInterrupt

    engines: list[ScriptedEngine] = []
    monkeypatch.setattr("handler.startup.start.start", started)
    monkeypatch.setattr(Progress, "update", interrupted_after_one)
    prompts = write(tmp_path / "prompts.jsonl", ['"<hold>"', '"Hello"'])
    output = tmp_path / "replies.jsonl"
    words = ["generate", str(sample_model.path()), "--prompts", str(prompts), "--output", str(output)]
    result = run(*words)
    assert "Interrupted" in result.output
    assert result.exit_code == 130
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["custom_id"], row["response"]["body"]["choices"][0]["text"]) for row in rows] == [("2", "Hello")]
    assert engines[0].stopped
    end_loop(engines[0].loop)


def test_replies_that_could_not_be_written_are_not_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handler.startup.start.start", lambda state: pytest.fail("an engine is started"))
    prompts = write(tmp_path / "prompts.jsonl", [GREEDY])
    words = ["generate", str(sample_model.path()), "--prompts", str(prompts)]
    result = run(*words, "--output", tmp_path / "results" / "replies.jsonl")
    assert result.exit_code == 2
    assert f"--output: there is no directory {tmp_path / 'results'}. Make it first." in result.output
