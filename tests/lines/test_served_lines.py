"""`make test-lines` serves Neuron lines by their own Python, over doubles of what is compiled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

import sample_model
from sample_model.facts import load
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine
TESTS = Path(__file__).parents[1]
SLOTS, LENGTH = 4, 1024
INSTANCE = "ml.trn1.2xlarge"
SHAPE = {"SM_VLLM_MAX_NUM_SEQS": str(SLOTS), "SM_VLLM_MAX_MODEL_LEN": str(LENGTH)}
EXPORTED = {"SM_VLLM_MAX_NUM_SEQS": "", "SM_VLLM_MAX_MODEL_LEN": ""}
COMPILES = "the double of the compiler compiles"
EXPORT = """
import sys
from optimum.neuron import NeuronModelForCausalLM as Model
model, directory, *shape = sys.argv[1:]
batch, length, degree = map(int, shape)
shape = Model.get_neuron_config(model, batch_size=batch, sequence_length=length, tensor_parallel_size=degree)
Model.export(model, neuron_config=shape).save_pretrained(directory)
"""
PROMPTS = [f"Question: {fact.questions[0]}\nAnswer:" for fact in load()[: 2 * SLOTS]]
LONG = {"prompt": PROMPTS[0], "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}


@dataclass(frozen=True)
class Served:
    """A line of this environment.

    :ivar path: what PYTHONPATH has before anything else, below `tests`.
    :ivar exports: it serves an export. Otherwise it serves the model itself, and compiles it at the first start.
    """

    line: str
    path: tuple[str, ...]
    shape: Mapping[str, str]
    exports: bool = False

    @property
    def double(self) -> dict[str, str]:
        return {"PYTHONPATH": ":".join(str(TESTS / each) for each in (*self.path, "lines/shared"))}

    @property
    def environ(self) -> dict[str, str]:
        return {**self.double, **self.shape, "ENDPOINT_INSTANCE": INSTANCE}


def of_this_environment() -> list[Served]:
    """The lines whose Python is installed: one of optimum-neuron, two of a vLLM 0.9.1 that is not named a CPU build."""
    if find_spec("optimum") is not None:
        return [Served("optimum", ("lines/optimum_double", "nxdi_sources"), EXPORTED, exports=True)]
    try:
        fork = version("vllm") == "0.9.1"
    except PackageNotFoundError:
        fork = False
    doubles = {"fork-0.9.1-tnx": "transformers_neuronx_double", "fork-0.9.1": "nxd_inference_double"}
    return [Served(line, (f"lines/{double}",), SHAPE) for line, double in doubles.items()] if fork else []


LINES = of_this_environment()
REASON = "no line's Python is installed: make test-lines"
SKIPPED = [pytest.param(None, marks=pytest.mark.skip(reason=REASON))]
V0 = [line for line in LINES if not line.exports]


@pytest.fixture(
    scope="module",
    params=LINES or SKIPPED,
    ids=lambda line: line.line if line else "none",
)
def line(request: pytest.FixtureRequest) -> Served:
    found: Served = request.param
    return found


@pytest.fixture(scope="module")
def model(line: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample model. For optimum-neuron: as its own exporter saves it, and its tokenizer."""
    directory = tmp_path_factory.mktemp("model")
    if not line.exports:
        return Path(shutil.copytree(sample_model.path(), directory, dirs_exist_ok=True))
    command = [sys.executable, "-c", EXPORT, str(sample_model.path()), str(directory), str(SLOTS), str(LENGTH), "2"]
    done = subprocess.run(command, env={**os.environ, **line.double}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert COMPILES in done.stdout
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(sample_model.path() / name, directory)
    return directory


@pytest.fixture(scope="module")
def store(line: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where a line that compiles at its start keeps what it has compiled."""
    directory = tmp_path_factory.mktemp("store")
    return {} if line.exports else {"ENDPOINT_ARTIFACT_STORE": f"file://{directory}"}


def start(directory: Path, line: Served, model: Path, store: Mapping[str, str]) -> ServeProcess:
    """Starts the endpoint. What it compiled and the runner's calls are in `directory`."""
    own = {"ENDPOINT_SCRATCH": str(directory / "scratch"), "DOUBLE_CALLS": str(directory / "calls")}
    served = ServeProcess(directory, {**line.environ, **own, **store, "ENDPOINT_MODEL": str(model)})
    try:
        served.wait_port()
        served.wait_ready()
    except BaseException:
        served.kill_all()
        raise
    return served


@pytest.fixture(scope="module")
def served(
    line: Served, model: Path, store: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServeProcess]:
    served = start(tmp_path_factory.mktemp("served"), line, model, store)
    compiles = served.log.count(COMPILES)
    assert bool(compiles) is not line.exports
    yield served
    below = psutil.Process(served.process.pid).children(recursive=True)
    assert served.terminate() == 0, served.log
    assert not psutil.wait_procs(below, timeout=60)[1], "no process stays"
    assert served.log.count(COMPILES) == compiles


def cores(served: ServeProcess) -> list[int]:
    """The engine's process: V1 names it, and V0 is a spawned one."""
    found = []
    for process in psutil.Process(served.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            words = " ".join(process.cmdline())
            found += [process.pid] if "EngineCore" in words or "spawn_main" in words else []
    return found


@cache
def expected(prompt: str) -> str:
    """What transformers answers, greedily."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sample_model.path())
    model = AutoModelForCausalLM.from_pretrained(sample_model.path(), torch_dtype="auto")
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


@pytest.mark.skipif(not V0, reason="the RFC is about V0's own backend")
def test_the_runner_does_what_the_rfc_says(served: ServeProcess, line: Served) -> None:
    """Prompts are encoded one at a time (the graph takes no more), between the steps of others; each sequence keeps its
    slot and its positions; a finished one is replaced by the next; a block holds a whole sequence, so slots are blocks.
    """
    if line.exports:
        pytest.skip("another runner")
    file = Path(served.log_path.parent / "calls")
    before = len(file.read_text().splitlines())
    with ThreadPoolExecutor(3 * SLOTS) as pool:
        asked = [(PROMPTS[number % len(PROMPTS)], 8 + 8 * number) for number in range(3 * SLOTS)]
        texts = list(pool.map(lambda each: ask(served, each[0], max_tokens=each[1], ignore_eos=True), asked))
    assert all(texts)
    calls = [json.loads(call) for call in file.read_text().splitlines()[before:]]
    prompts = [call for call in calls if call["prompt"]]
    steps = [call for call in calls if not call["prompt"]]
    assert sum(len(call["slots"]) for call in prompts) == len(asked), "each once"
    assert max(len(call["slots"]) for call in steps) == SLOTS, "all slots decode at once"
    assert sum(len(call["slots"]) for call in steps) == sum(tokens - 1 for _, tokens in asked), "one token a step"
    assert any(call["prompt"] for call in calls[calls.index(steps[0]) : calls.index(steps[-1])]), "while others decode"
    places: dict[int, int] = {}
    taken: dict[int, int] = defaultdict(int)
    for call in calls:
        assert len(set(call["slots"])) == len(call["slots"])
        for slot, position in zip(call["slots"], call["positions"], strict=True):
            assert 0 <= slot < SLOTS
            assert call["prompt"] or position == places[slot] + 1, "each sequence has its own position"
            places[slot], taken[slot] = position, taken[slot] + call["prompt"]
    assert sorted(taken) == list(range(SLOTS))
    assert max(taken.values()) > 1, "a slot is used again"


def test_a_killed_core_is_replaced_and_compiles_nothing(served: ServeProcess) -> None:
    (core,) = cores(served)
    os.kill(core, 9)
    served.until(lambda: served.ping()[0] == 200 and cores(served) not in ([], [core]), 300)
    assert ask(served, PROMPTS[2]) == expected(PROMPTS[2])  # the fixture counts what was compiled


def test_a_second_start_compiles_nothing(
    served: ServeProcess, line: Served, model: Path, store: Mapping[str, str], tmp_path: Path
) -> None:
    """Another instance finds what the first has exported, or has compiled and saved."""
    before = digest(model)
    again = start(tmp_path, line, model, store)
    try:
        assert ask(again, PROMPTS[3]) == expected(PROMPTS[3])
    finally:
        status = again.terminate()
    assert status == 0, again.log
    assert COMPILES not in again.log
    assert digest(model) == before


def test_generate_answers_a_file_without_a_server(
    served: ServeProcess, line: Served, model: Path, store: Mapping[str, str], tmp_path: Path
) -> None:
    """It finds what the endpoint has compiled and saved."""
    prompts, replies, settings = (tmp_path / name for name in ("prompts.jsonl", "replies.jsonl", "endpoint.env"))
    bodies = [{"prompt": prompt, "max_tokens": 64, "temperature": 0} for prompt in PROMPTS]
    prompts.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    typed = {"SM_VLLM_ENFORCE_EAGER": "true", **line.shape, **store, "ENDPOINT_INSTANCE": INSTANCE}  # as `start` does
    typed["ENDPOINT_SCRATCH"] = str(tmp_path / "scratch")
    settings.write_text("".join(f"{name}={value}\n" for name, value in typed.items()))
    command = [str(Path(sys.executable).with_name("neuron-endpoint")), "generate", str(model)]
    command += ["--prompts", str(prompts), "--output", str(replies), "--env-file", str(settings)]
    done = subprocess.run(command, env={**os.environ, **line.double}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    rows = [json.loads(row)["response"]["body"] for row in replies.read_text().splitlines()]
    assert [row["choices"][0]["text"] for row in rows] == [expected(prompt) for prompt in PROMPTS]
    assert COMPILES not in done.stdout


def test_it_keeps_the_contract_of_every_engine(line: Served, model: Path) -> None:
    suite = str(TESTS / "handler" / "engine" / "contract")
    environ = {**os.environ, **line.double, "CONTRACT_MODEL": str(model), "ENDPOINT_INSTANCE": INSTANCE}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", suite]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:]
    print(done.stdout.splitlines()[-1])


def digest(directory: Path) -> str:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()
