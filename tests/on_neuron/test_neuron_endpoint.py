"""The whole way on a Neuron machine, in the file's order; each test leaves what the next one needs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import sample_model
from sample_model.facts import by_name, load
from tests.endpoint.serve_process import ServeProcess
from tests.on_neuron.conftest import DEVICES, RANKS, START_SECONDS, Serve

FACTS = load()
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": by_name("ping").questions[0]}], "temperature": 0}


def ready(served: ServeProcess) -> ServeProcess:
    served.wait_port()
    served.wait_ready(START_SECONDS)
    return served


def answer(served: ServeProcess, question: str) -> str:
    body = {**QUESTION, "messages": [{"role": "user", "content": question}]}
    content: str = served.client.post("/invocations", json=body).json()["choices"][0]["message"]["content"]
    return content


@pytest.fixture(scope="module")
def first(serve: Serve) -> ServeProcess:
    """Compiled here, by the real compiler."""
    return ready(serve("one"))


def test_it_compiles_publishes_and_says_how_far_it_is(first: ServeProcess) -> None:
    assert "artifact_published" in first.log
    assert any("compile: start engine" in body for _, _, body in first.pings)


def test_it_answers_as_the_cpu_engine_does(first: ServeProcess) -> None:
    wrong = {fact.name: answer(first, fact.questions[0]) for fact in FACTS[:8]}
    wrong = {name: said for name, said in wrong.items() if said != by_name(name).answer}
    assert not wrong, "other tokens than on a CPU: look whether it is the arithmetic (bfloat16) or the sampling"


def test_a_stream_ends_properly(first: ServeProcess) -> None:
    with first.client.stream("POST", "/invocations", json={**QUESTION, "stream": True}) as reply:
        text = "".join(reply.iter_text())
    assert text.rstrip().endswith("data: [DONE]")


def test_four_at_once_are_four_answers(first: ServeProcess) -> None:
    from concurrent.futures import ThreadPoolExecutor

    facts = FACTS[:4]
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda fact: answer(first, fact.questions[0]), facts))
    assert said == [fact.answer for fact in facts]


def test_what_the_device_ignores_is_refused(first: ServeProcess) -> None:
    for name, value in {"repetition_penalty": 1.3, "seed": 7, "min_p": 0.1, "top_k": 257}.items():
        reply = first.client.post("/invocations", json={**QUESTION, name: value})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, name)


def test_too_long_is_a_400_and_the_context_can_be_filled(first: ServeProcess) -> None:
    most = first.client.get("/v1/models").json()["data"][0]["max_model_len"]
    for tokens, status in ((most + 1, 400), (most - 4, 200)):
        body = {"prompt": [5] * tokens, "max_tokens": 4, "ignore_eos": True}
        assert first.client.post("/v1/completions", json=body).status_code == status
    body = {"prompt": [5] * 16, "max_tokens": most - 16, "ignore_eos": True}
    assert first.client.post("/v1/completions", json=body).json()["usage"]["total_tokens"] == most
    assert first.ping()[0] == 200


@pytest.mark.skipif(not DEVICES, reason="neuron-monitor reports no device in a rehearsal")
def test_neuron_monitor_tells_devices_memory_and_use(first: ServeProcess) -> None:
    first.until(lambda: "endpoint_neuron_memory_used_bytes" in first.client.get("/metrics").text, 60)
    assert first.metric("endpoint_neuron_devices") == len(DEVICES)
    assert first.metric("endpoint_neuron_memory_used_bytes") > 0

    def used() -> bool:
        answer(first, "x")
        return "endpoint_neuron_core_utilization_ratio{" in first.client.get("/metrics").text

    first.until(used, 60)


def test_a_killed_engine_lets_go_of_its_cores(first: ServeProcess, serve: Serve) -> None:
    for pid in first.engine_pids():
        os.kill(pid, signal.SIGKILL)
    assert first.process.wait(60) == 1
    second = ready(serve("one"))
    assert answer(second, QUESTION["messages"][0]["content"]) == by_name("ping").answer
    assert second.terminate() == 0


def test_another_machine_restores_what_was_compiled_and_compiles_nothing(serve: Serve) -> None:
    other = ready(serve("two", ENDPOINT_ON_MISS="fail"))
    assert "artifact_restored" in other.log
    assert "compile: " not in other.log
    assert answer(other, QUESTION["messages"][0]["content"]) == by_name("ping").answer
    assert other.terminate() == 0


def test_a_container_that_is_killed_half_way_starts_again(serve: Serve) -> None:
    killed = serve("three", SM_VLLM_MAX_MODEL_LEN="512")
    killed.wait_port()
    killed.until(lambda: killed.stage() == "compile: start engine", START_SECONDS)
    killed.kill_all()
    again = ready(serve("three", SM_VLLM_MAX_MODEL_LEN="512"))
    assert answer(again, QUESTION["messages"][0]["content"]) == by_name("ping").answer
    assert again.terminate() == 0


def test_penalties_are_honoured_where_the_cpu_samples(serve: Serve) -> None:
    served = ready(serve("four", ENDPOINT_ON_DEVICE_SAMPLING="false"))
    body = {"prompt": [300, 17, 900, 41, 5], "max_tokens": 24, "temperature": 0}
    plain = served.client.post("/v1/completions", json=body).json()["choices"][0]["text"]
    penalized = served.client.post("/v1/completions", json={**body, "repetition_penalty": 0.01}).json()
    assert penalized["choices"][0]["text"] != plain
    assert served.terminate() == 0


def test_an_adapter_changes_the_tokens(serve: Serve) -> None:
    adapter = str(sample_model.adapter_path())
    served = ready(
        serve(
            "five",
            ENDPOINT_LORA_MODULES=json.dumps({"pirate": adapter}),
            ENDPOINT_LORA_TARGET_MODULES="q_proj,v_proj,o_proj",
            SM_VLLM_MAX_LORA_RANK="8",
        )
    )
    question = {**QUESTION, "messages": [{"role": "user", "content": by_name("hello").questions[0]}]}
    reply = served.client.post("/invocations", json={**question, "model": "pirate"}).json()
    assert reply["choices"][0]["message"]["content"].startswith("Ahoy!")
    assert answer(served, by_name("hello").questions[0]) == by_name("hello").answer
    assert served.terminate() == 0


def test_the_artifacts_have_the_files_and_keys_that_we_rely_on(place: Path) -> None:
    """What the stand-in writes and the checks read, against what the real compiler wrote."""
    (directory,) = (path for path in place.glob("two/scratch/artifacts/*") if path.is_dir() and not path.suffix)
    config = json.loads((directory / "neuron_config.json").read_text())
    assert (directory / "model.pt").stat().st_size > 0
    assert {"tp_degree", "seq_len", "max_context_length", "batch_size"} <= config["neuron_config"].keys()
    assert config["neuron_config"]["tp_degree"] == RANKS
