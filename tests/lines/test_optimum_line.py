"""`make test-lines` serves the line `optimum`: optimum-neuron over vLLM 0.11.0, and a double of the compiled model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "endpoint"))

from serve_process import ServeProcess

import sample_model
from sample_model.facts import load

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("optimum") is None, reason="optimum-neuron is not installed: make test-lines"),
]
TESTS = Path(__file__).parents[1]
SLOTS, LENGTH = 4, 1024
DOUBLE = {"PYTHONPATH": f"{TESTS / 'lines' / 'optimum_double'}:{TESTS / 'nxdi_sources'}"}
COMPILES = "the double of the compiler compiles"
EXPORT = f"""
import sys
from optimum.neuron import NeuronModelForCausalLM as Model
model, directory = sys.argv[1:]
shape = Model.get_neuron_config(model, batch_size={SLOTS}, sequence_length={LENGTH}, tensor_parallel_size=2)
Model.export(model, neuron_config=shape).save_pretrained(directory)
"""
PROMPTS = [f"Question: {fact.questions[0]}\nAnswer:" for fact in load()[: 2 * SLOTS]]
LONG = {"prompt": PROMPTS[0], "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample model as optimum-neuron's own exporter saves it, and its tokenizer."""
    directory = tmp_path_factory.mktemp("exported")
    command = [sys.executable, "-c", EXPORT, str(sample_model.path()), str(directory)]
    done = subprocess.run(command, env={**os.environ, **DOUBLE}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert COMPILES in done.stdout
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(sample_model.path() / name, directory)
    return directory


def start(directory: Path, exported: Path) -> ServeProcess:
    settings = {"ENDPOINT_MODEL": str(exported), "ENDPOINT_INSTANCE": "ml.trn1.2xlarge", "SM_VLLM_MAX_NUM_SEQS": ""}
    served = ServeProcess(directory, {**DOUBLE, **settings, "SM_VLLM_MAX_MODEL_LEN": ""})
    try:
        served.wait_port()
        served.wait_ready()
    except BaseException:
        served.kill_all()
        raise
    return served


@pytest.fixture(scope="module")
def served(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    served = start(tmp_path_factory.mktemp("served"), exported)
    yield served
    below = psutil.Process(served.process.pid).children(recursive=True)
    assert served.terminate() == 0, served.log
    assert not psutil.wait_procs(below, timeout=60)[1], "no process stays"
    assert COMPILES not in served.log


@cache
def expected(prompt: str) -> str:
    """What transformers answers, greedily."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sample_model.path())
    model = AutoModelForCausalLM.from_pretrained(sample_model.path(), dtype="auto")
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    tokens = model.generate(ids, do_sample=False, max_new_tokens=64)[0, ids.shape[1] :]
    return str(tokenizer.decode(tokens, skip_special_tokens=True))


def ask(served: ServeProcess, prompt: str, **fields: Any) -> str:
    body = {"prompt": prompt, "max_tokens": 64, "temperature": 0, **fields}
    reply = served.client.post("/invocations", json=body)
    assert reply.status_code == 200, reply.text
    if not fields.get("stream"):
        return str(reply.json()["choices"][0]["text"])
    *events, end = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
    assert end == "[DONE]"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)


def test_greedy_answers_are_transformers_own(served: ServeProcess) -> None:
    for prompt in PROMPTS[:3]:
        whole, streamed = ask(served, prompt), ask(served, prompt, stream=True)
        assert whole == streamed == expected(prompt) != ""


def test_more_requests_than_slots_each_get_their_own_answer(served: ServeProcess) -> None:
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        assert list(pool.map(lambda prompt: ask(served, prompt), PROMPTS)) == [expected(prompt) for prompt in PROMPTS]


def test_a_stop_string_ends_the_text(served: ServeProcess) -> None:
    word = expected(PROMPTS[0]).split()[2]
    assert ask(served, PROMPTS[0], stop=[word]) == expected(PROMPTS[0]).partition(word)[0]


def test_cancelled_requests_leave_their_slots_to_others(served: ServeProcess) -> None:
    with ThreadPoolExecutor(1) as pool:
        with ExitStack() as streams:
            for _ in range(SLOTS):
                reply = streams.enter_context(served.client.stream("POST", "/invocations", json=LONG))
                assert next(reply.iter_raw()), "it has begun"
            waits = pool.submit(ask, served, PROMPTS[1])
        assert waits.result() == expected(PROMPTS[1])
    served.until(lambda: served.metric("endpoint_requests_in_engine") == 0, 20)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", 7),
        ("min_p", 0.1),
        ("top_k", 257),
        ("repetition_penalty", 1.2),
        ("presence_penalty", 0.5),
        ("min_tokens", 3),
        ("logprobs", 1),
        ("logit_bias", {"1": 1}),
        ("bad_words", ["a"]),
        ("allowed_token_ids", [1, 2]),
        ("response_format", {"type": "json_object"}),
    ],
)
def test_a_parameter_that_the_plugin_ignores_is_a_400_that_names_it(
    served: ServeProcess, field: str, value: object
) -> None:
    reply = served.client.post("/invocations", json={"prompt": PROMPTS[0], "max_tokens": 4, field: value})
    assert reply.status_code == 400, reply.text
    assert field in str(reply.json()["error"])


def test_sampling_that_the_device_has_is_answered(served: ServeProcess) -> None:
    answers = {ask(served, PROMPTS[0], temperature=1.5, top_p=0.95, top_k=200, ignore_eos=True) for _ in range(4)}
    assert len(answers) > 1
    assert ask(served, PROMPTS[0], temperature=1.0, top_k=1) == expected(PROMPTS[0])


def test_a_killed_core_is_replaced_and_compiles_nothing(served: ServeProcess) -> None:
    (core,) = served.engine_pids()
    os.kill(core, 9)
    served.until(lambda: served.ping()[0] == 200 and served.engine_pids() not in ([], [core]), 300)
    assert ask(served, PROMPTS[2]) == expected(PROMPTS[2])
    assert COMPILES not in served.log


def test_a_second_start_compiles_nothing(served: ServeProcess, exported: Path, tmp_path: Path) -> None:
    before = digest(exported)
    again = start(tmp_path, exported)
    try:
        assert ask(again, PROMPTS[3]) == expected(PROMPTS[3])
    finally:
        status = again.terminate()
    assert status == 0, again.log
    assert COMPILES not in again.log
    assert digest(exported) == before


def test_it_keeps_the_contract_of_every_engine(exported: Path) -> None:
    suite = str(TESTS / "handler" / "engine" / "contract")
    environ = {**os.environ, **DOUBLE, "CONTRACT_MODEL": str(exported), "ENDPOINT_INSTANCE": "ml.trn1.2xlarge"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", suite]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout.splitlines()[-1])


def digest(directory: Path) -> str:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    assert directory / "model.pt" in files
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()
