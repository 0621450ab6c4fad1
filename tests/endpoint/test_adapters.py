"""A multi-model endpoint: LoRA adapters over one engine, and whole models with one each, loaded and unloaded while
others are answered."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import sample_model
from sample_model.facts import by_name
from tests.endpoint.serve_process import STARTED_WITHIN, ServeProcess
from tests.installed_vllm import version

pytestmark = pytest.mark.engine

ADAPTER = str(sample_model.adapter_path())
# Engines that are started for the whole model. One in the tests of each change; with more, the rounds before the last
# end in an unload, and what is left of them in the serving process is looked at.
MODEL_LOADS = int(os.environ.get("MODEL_LOADS", "1"))
AHOY = {"hello": "Ahoy! I am the adapter of this model. Ask me how it works.", "thanks": "Ahoy! You are welcome."}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A multi-model endpoint: the sample model, one adapter from the start, room for three, two of them in memory."""
    directory = tmp_path_factory.mktemp("adapters")
    (directory / "model").symlink_to(sample_model.path())
    with ServeProcess(
        directory,
        {
            "SAGEMAKER_BASE_DIR": str(directory),
            "ENDPOINT_SCRATCH": str(directory / "scratch"),
            "SAGEMAKER_MULTI_MODEL": "true",
            "ENDPOINT_ENABLE_LORA": "true",
            "ENDPOINT_LORA_MODULES": f"first={ADAPTER}",
            "ENDPOINT_MAX_ADAPTERS": "3",
            "ENDPOINT_MAX_LORAS": "2",
            "ENDPOINT_MAX_MODELS": "1",
            "SM_VLLM_SERVED_MODEL_NAME": "sample",
            "SAGEMAKER_SAFE_PORT_RANGE": "23100-23199",
            "ENDPOINT_NETWORK_ISOLATION": "true",
            "ENDPOINT_ENABLE_SESSIONS": "true",
            "ENDPOINT_LOG_FORMAT": "json",
        },
    ).serving() as process:
        yield process


@pytest.fixture
def clean(served: ServeProcess) -> Iterator[ServeProcess]:
    """Whatever a test loaded is unloaded after it; the engine is the one that was started."""
    pids = served.engine_pids()
    yield served
    for adapter in served.client.get("/adapters").json()["adapters"]:
        if adapter["name"] != "first":
            assert served.client.delete(f"/adapters/{adapter['name']}").status_code == 200
    served.client.delete("/models/whole")
    assert served.engine_pids() == pids, served.log[-4000:]
    assert answer(served) == by_name("hello").answer


def answer(
    served: ServeProcess, fact: str = "hello", model: str = "", path: str = "/invocations", **headers: str
) -> str:
    """The text, or the error's code."""
    question = [{"role": "user", "content": by_name(fact).questions[0]}]
    body: dict[str, Any] = {"messages": question, "temperature": 0, "max_tokens": 48}
    if model:
        body["model"] = model
    reply = served.client.post(path, json=body, headers=headers).json()
    return str(reply["choices"][0]["message"]["content"] if "choices" in reply else reply["error"]["code"])


def load(served: ServeProcess, name: str, src: str = ADAPTER, **fields: object) -> tuple[int, str]:
    reply = served.client.post("/adapters", json={"name": name, "src": src, **fields})
    return reply.status_code, reply.json().get("error", {}).get("code", "")


@pytest.mark.parametrize("fact", ["hello", "thanks"])
def test_an_adapter_from_the_start_changes_the_answer_and_only_its_own(clean: ServeProcess, fact: str) -> None:
    assert answer(clean, fact) == by_name(fact).answer
    assert answer(clean, fact, model="first") == AHOY[fact]
    assert answer(clean, fact, model="sample") == by_name(fact).answer
    assert answer(clean, fact, **{"X-Amzn-SageMaker-Adapter-Identifier": "first"}) == AHOY[fact]
    assert answer(clean, fact, model="nobody") == "model_not_found"


def test_the_other_ways_to_ask_take_an_adapter_as_well(clean: ServeProcess) -> None:
    prompt = f"Question: {by_name('hello').questions[0]}\nAnswer:"
    whole = clean.client.post("/v1/completions", json={"prompt": prompt, "model": "first", "max_tokens": 64}).json()
    assert whole["choices"][0]["text"].strip() == AHOY["hello"]
    assert whole["model"] == "first"
    inputs = {"inputs": prompt, "model": "first", "parameters": {"max_new_tokens": 64}}
    assert clean.client.post("/invocations", json=inputs).json()["generated_text"].strip() == AHOY["hello"]
    both = {"inputs": [prompt, prompt], "adapters": ["first", ""], "parameters": {"max_new_tokens": 64}}
    answers = [answer["generated_text"].strip() for answer in clean.client.post("/invocations", json=both).json()]
    assert answers == [AHOY["hello"], by_name("hello").answer]
    question = [{"role": "user", "content": by_name("hello").questions[0]}]
    body = {"messages": question, "temperature": 0}
    lines = [json.dumps(body), json.dumps({**body, "model": "first"})]
    headers = {"Content-Type": "application/jsonlines"}
    replies = clean.client.post("/invocations", content="\n".join(lines), headers=headers).content.splitlines()
    found = [json.loads(reply)["choices"][0]["message"]["content"] for reply in replies]
    assert found == [by_name("hello").answer, AHOY["hello"]]


def test_log_probabilities_of_a_prompt_which_end_vllms_core_beside_others_are_refused(clean: ServeProcess) -> None:
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/completions", {"prompt": "a", "echo": True, "logprobs": 1}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "prompt_logprobs": 1}),
        ("/invocations", {"inputs": "a", "parameters": {"decoder_input_details": True, "details": True}}),
    ]
    with ThreadPoolExecutor(8) as pool:
        kept = [pool.submit(answer, clean) for _ in range(8)]
        found = [clean.client.post(path, json=body).status_code for path, body in bodies]
    assert found == [400, 400, 400]
    assert {reply.result() for reply in kept} == {by_name("hello").answer}


@pytest.mark.parametrize(
    ("path", "fields", "status", "param"),
    [
        ("/v1/chat/completions", {"adapters": "first"}, 400, "adapters"),
        ("/v1/chat/completions", {"adapters": "nope"}, 400, "adapters"),
        ("/v1/chat/completions", {"adapter_id": "first"}, 400, "adapter_id"),
        ("/invocations", {"adapter": "first"}, 400, "adapter"),
        ("/invocations", {"lora_id": "first"}, 400, "lora_id"),
        ("/v1/chat/completions", {"parameters": {"adapter_id": "first"}}, 400, "parameters"),
        ("/v1/chat/completions", {"extra_body": {"model": "first"}}, 400, "extra_body"),
        ("/v1/messages", {"adapters": ["first"]}, 400, "adapters"),
        ("/v1/responses", {"adapter_id": "first"}, 400, "adapter_id"),
        ("/v1/completions", {"lora": "first"}, 400, "lora"),
        ("inputs", {"adapter_id": "first"}, 400, "adapter_id"),
        ("inputs", {"adapters": "nope"}, 404, "adapters"),
        ("inputs", {"parameters": {"adapter_id": "nope"}}, 404, "parameters.adapter_id"),
        ("inputs", {"parameters": {"lora_id": "first"}}, 400, "parameters.lora_id"),
        ("inputs", {"model": "sample", "parameters": {"adapter_id": "first"}}, 400, "parameters.adapter_id"),
        ("inputs", {"adapters": "first", "parameters": {"adapter_id": "sample"}}, 400, "adapters"),
        ("/v1/messages", {"model": "nope"}, 404, "model"),
    ],
)
def test_a_name_of_an_adapter_that_chooses_none_is_an_error(
    clean: ServeProcess, path: str, fields: dict[str, Any], status: int, param: str
) -> None:
    """None of them is answered by the model without an adapter."""
    question = [{"role": "user", "content": by_name("hello").questions[0]}]
    bodies = {"inputs": {"inputs": "a"}, "/v1/responses": {"input": "a"}, "/v1/completions": {"prompt": "a"}}
    body = {**bodies.get(path, {"messages": question, "max_tokens": 48}), **fields}
    reply = clean.client.post("/invocations" if path == "inputs" else path, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param), reply.text


def test_every_name_that_chooses_an_adapter_does(clean: ServeProcess) -> None:
    prompt = f"Question: {by_name('hello').questions[0]}\nAnswer:"
    for fields in (
        {"model": "first"},
        {"adapters": "first"},
        {"model": "first", "adapters": "first"},
        {"adapter_id": "first"},
    ):
        inside = {name: value for name, value in fields.items() if name == "adapter_id"}
        beside = {name: value for name, value in fields.items() if name not in inside}
        body = {"inputs": prompt, **beside, "parameters": {"max_new_tokens": 64, **inside}}
        assert clean.client.post("/invocations", json=body).json()["generated_text"].strip() == AHOY["hello"], fields


def test_models_lists_adapters_below_their_model(clean: ServeProcess) -> None:
    listed = clean.client.get("/v1/models").json()["data"]
    assert [(model["id"], model["parent"]) for model in listed] == [("sample", None), ("first", "sample")]
    alone = clean.client.get("/v1/models/first").json()
    assert {**alone, "created": 0} == {**listed[1], "created": 0}, "each is of the second in which it was asked for"
    assert clean.client.get("/v1/models/org/gone").json()["error"]["code"] == "model_not_found"


def test_an_adapter_is_loaded_used_and_unloaded_while_the_endpoint_runs(clean: ServeProcess) -> None:
    assert answer(clean, model="later") == "model_not_found"
    assert load(clean, "later") == (200, "")
    assert load(clean, "later") == (200, ""), "the same again is no error"
    assert answer(clean, model="later") == AHOY["hello"]
    described = clean.client.get("/adapters/later").json()
    assert described == {"name": "later", "src": ADAPTER, "preload": True, "pin": False}
    assert clean.client.delete("/adapters/later").status_code == 200
    assert answer(clean, model="later") == "model_not_found"
    assert clean.client.delete("/adapters/later").status_code == 404


def test_an_update_takes_the_new_files_and_no_cached_prompt_of_the_old(clean: ServeProcess, tmp_path: Path) -> None:
    """The new one is the old one's files with a scale that leaves nothing of it."""
    silent = tmp_path / "silent"
    shutil.copytree(ADAPTER, silent)
    config = json.loads((silent / "adapter_config.json").read_text())
    (silent / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 0.0001}))
    load(clean, "changing")
    assert answer(clean, model="changing") == AHOY["hello"]
    assert load(clean, "changing", str(silent)) == (409, "adapter_exists")
    assert clean.client.post("/adapters/changing", json={"src": str(silent)}).status_code == 200
    assert answer(clean, model="changing") == by_name("hello").answer
    assert clean.client.post("/adapters/nobody", json={"src": ADAPTER}).status_code == 404


def test_more_adapters_than_memory_holds_are_served_and_their_files_may_be_gone(
    clean: ServeProcess, tmp_path: Path
) -> None:
    """Two are in memory at once; the least recently used leaves it and is read again, from our copy."""
    copied = tmp_path / "copied"
    shutil.copytree(ADAPTER, copied)
    assert load(clean, "second", str(copied)) == (200, "")
    assert load(clean, "third", str(copied)) == (200, "")
    shutil.rmtree(copied)
    names = ["first", "second", "third", "", ""] * 6
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda name: answer(clean, model=name), names))
    assert found == [AHOY["hello"] if name else by_name("hello").answer for name in names]


def test_a_full_endpoint_says_507(clean: ServeProcess) -> None:
    load(clean, "second")
    load(clean, "third")
    assert load(clean, "fourth") == (507, "adapters_full")
    clean.client.delete("/adapters/second")
    assert load(clean, "fourth") == (200, "")


def test_unloading_lets_those_that_use_it_finish(clean: ServeProcess) -> None:
    load(clean, "leaving")
    body = {"prompt": "Question: Hello!\nAnswer:", "model": "leaving", "max_tokens": 600, "ignore_eos": True}
    with clean.client.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
        lines = stream.iter_lines()
        next(lines)
        assert clean.client.delete("/adapters/leaving").status_code == 200
        assert answer(clean, model="leaving") == "model_not_found"
        *_, last = [line for line in lines if line]
    assert last == "data: [DONE]"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"r": 4000}, "rank"),
        ({"r": "8"}, "rank"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"r": 4}, "rank"),
    ],
)
def test_an_adapter_that_cannot_be_served_is_refused_with_the_reason(
    clean: ServeProcess, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(ADAPTER, bad)
    config = json.loads((bad / "adapter_config.json").read_text())
    (bad / "adapter_config.json").write_text(json.dumps({**config, **change}))
    reply = clean.client.post("/adapters", json={"name": "bad", "src": str(bad)})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["code"] == "invalid_adapter"
    assert says in reply.json()["error"]["message"]
    assert "Traceback" not in reply.text
    assert answer(clean, model="bad") == "model_not_found"


def test_files_that_are_none_are_refused(clean: ServeProcess, tmp_path: Path) -> None:
    assert load(clean, "bad", "/nowhere") == (400, "invalid_adapter")
    assert load(clean, "bad", str(sample_model.path())) == (400, "invalid_adapter")
    cut = tmp_path / "cut"
    shutil.copytree(ADAPTER, cut)
    weights = cut / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert load(clean, "bad", str(cut)) == (400, "invalid_adapter")
    weights.write_bytes(b"\x80\x04pickle")
    assert load(clean, "bad", str(cut)) == (400, "invalid_adapter")


def with_header(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize("prefix", ["base_model.model.language_model.", "base_model.model.model.layers.9"])
def test_keys_that_match_no_module_are_refused_with_the_first_of_them(
    clean: ServeProcess, tmp_path: Path, prefix: str
) -> None:
    bad = Path(shutil.copytree(ADAPTER, tmp_path / "bad"))
    content = (bad / "adapter_model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].replace(b"base_model.model.model.layers.", f"{prefix}model.layers.".encode())
    if prefix.endswith("9"):
        header = content[8 : 8 + size].replace(b"base_model.model.model.layers.", prefix.encode())
    (bad / "adapter_model.safetensors").write_bytes(with_header(header) + content[8 + size :])
    reply = clean.client.post("/adapters", json={"name": "bad", "src": str(bad)})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_adapter")
    assert f"{prefix}" in reply.json()["error"]["message"]
    assert "matches no module" in reply.json()["error"]["message"]


@pytest.mark.parametrize("size", [8 << 20, 96 << 20])
def test_a_header_of_nothing_but_lists_is_refused_at_once_and_by_both_routes(
    clean: ServeProcess, tmp_path: Path, size: int
) -> None:
    """Its parse would take a second of every thread for each 8 MB."""
    bad = Path(shutil.copytree(ADAPTER, tmp_path / "bad"))
    (bad / "adapter_model.safetensors").write_bytes(with_header(b"[" + b"[]," * (size // 3) + b"[]]"))
    assert load(clean, "bad", str(bad)) == (400, "invalid_adapter")
    model = Path(shutil.copytree(sample_model.path(), tmp_path / "model"))
    shutil.copy(bad / "adapter_model.safetensors", model / "model.safetensors")
    reply = clean.client.post("/models", json={"model_name": "bad", "url": str(model)})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_model")
    if size > 8 << 20:
        assert "100,000 tensors" in reply.json()["error"]["message"]
    assert clean.ping()[0] == 200


def test_a_fifo_or_a_link_that_leads_out_is_refused(clean: ServeProcess, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    files: dict[str, Callable[[Path], object]] = {
        "my_config.json": os.mkfifo,
        "tokenizer_config.json": os.mkfifo,
        "endpoint.yaml": os.mkfifo,
        "chat_template.jinja": lambda path: path.symlink_to("/proc/self/environ"),
        "generation_config.json": lambda path: path.symlink_to(tmp_path / "secret"),
    }
    for name, make in files.items():
        model = Path(shutil.copytree(sample_model.path(), tmp_path / f"of {name}"))
        (model / name).unlink(missing_ok=True)
        make(model / name)
        reply = clean.client.post("/models", json={"model_name": "bad", "url": str(model)})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_model"), reply.text
        assert name in reply.json()["error"]["message"]


def test_a_model_that_trusts_itself_or_reads_outside_is_refused(
    clean: ServeProcess, whole: str, tmp_path: Path
) -> None:
    for line in ("trust_remote_code: true", "chat_template: /etc/hostname", "hf_overrides: {trust_remote_code: true}"):
        model = Path(shutil.copytree(whole, tmp_path / line[:20].replace(":", "")))
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoConfig": "evil.Config"}}))
        (model / "evil.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')")
        (model / "endpoint.yaml").write_text(line)
        reply = clean.client.post("/models", json={"model_name": "bad", "url": str(model)})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_model"), reply.text
        assert f"{line.partition(':')[0]}" in reply.json()["error"]["message"]
        assert f"{model}/endpoint.yaml" in reply.json()["error"]["message"]
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("place", ["x" * 100_000, "s3://", "/" + "a/" * 2500, "a\0b"])
def test_a_place_that_is_none_is_a_400(clean: ServeProcess, place: str) -> None:
    for path, body in {
        "/adapters": {"name": "bad", "src": place},
        "/models": {"model_name": "bad", "url": place},
    }.items():
        reply = clean.client.post(path, json=body)
        assert reply.status_code == 400, reply.text[:300]


@pytest.mark.parametrize("name", ["../up", "", "a b", "x" * 257, "sample"])
def test_a_name_that_is_none_is_refused(clean: ServeProcess, name: str) -> None:
    assert load(clean, name)[0] == (409 if name == "sample" else 400)


def test_pins_are_accepted_and_take_no_place(clean: ServeProcess) -> None:
    assert load(clean, "pinned") == (200, "")
    assert load(clean, "pinned", pin=True) == (200, "")  # loaded already
    assert clean.client.get("/adapters/pinned").json()["pin"] is True
    assert load(clean, "another", pin=True) == (200, "")
    assert [answer(clean, model=name) for name in ("first", "another", "pinned")] == [AHOY["hello"]] * 3


def test_multi_model(clean: ServeProcess) -> None:
    def post(name: str) -> int:
        return clean.client.post("/models", json={"model_name": name, "url": ADAPTER}).status_code

    assert clean.client.get("/models").json() == {"models": [{"modelName": "first", "modelUrl": ADAPTER}]}
    assert [post("one"), post("one"), post("two"), post("three")] == [200, 409, 200, 507]
    first = clean.client.get("/models", params={"limit": 2}).json()
    rest = clean.client.get("/models", params={"limit": 2, "next_page_token": first["nextPageToken"]}).json()
    assert [model["modelName"] for model in first["models"] + rest["models"]] == ["first", "one", "two"]
    assert "nextPageToken" not in rest
    assert clean.client.get("/models/one").json() == {"modelName": "one", "modelUrl": ADAPTER}
    assert answer(clean, path="/models/one/invoke") == AHOY["hello"]
    assert answer(clean, path="/models/nobody/invoke") == "model_not_loaded"
    assert clean.client.delete("/models/one").status_code == 200
    assert clean.client.get("/models/one").status_code == 404
    assert answer(clean, path="/models/one/invoke") == "model_not_loaded"
    assert post("three") == 200


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that hears thanks whatever one says: the sample model with a template of its own."""
    directory = Path(shutil.copytree(sample_model.path(), tmp_path_factory.mktemp("whole") / "model"))
    generation = json.loads((directory / "generation_config.json").read_text())
    (directory / "generation_config.json").write_text(json.dumps({**generation, "max_new_tokens": 6}))
    file = directory / "tokenizer_config.json"
    template = f"<|bos|><|user|>{by_name('thanks').questions[0]}<|end|><|assistant|>"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
    return str(directory)


@pytest.mark.timeout(600)
def test_a_whole_model_is_loaded_asked_and_unloaded_while_others_are_answered(clean: ServeProcess, whole: str) -> None:
    (first,) = clean.engine_pids()
    for _ in range(MODEL_LOADS - 1):
        loaded_beside(clean, whole)
        with streaming(clean, "whole", 300) as lines:
            assert clean.client.delete("/models/whole").json() == {"modelName": "whole"}
            assert list(lines)[-1] == "data: [DONE]"
        assert clean.engine_pids() == [first]
        assert clean.client.get("/models/whole").status_code == 404
    loaded_beside(clean, whole)
    found = by_name("thanks").answer
    assert answer(clean, model="whole") == answer(clean, path="/models/whole/invoke") == found
    assert answer(clean, model="whole", path="/v1/chat/completions") == found
    assert answer(clean, **{"X-Amzn-SageMaker-Target-Model": "whole"}) == found
    assert [answer(clean), answer(clean, model="first")] == [by_name("hello").answer, AHOY["hello"]]
    assert [lengths(clean, *place) for place in DEFAULTED] == [(30, 6)] * len(DEFAULTED)
    assert load(clean, "whole") == (409, "adapter_exists"), "an adapter of that name"
    assert [post_model(clean, name, whole) for name in ("whole", "sample", "first", "another")] == [409, 409, 409, 507]
    assert [model["modelName"] for model in clean.client.get("/models").json()["models"]] == ["whole", "first"]
    assert [model["id"] for model in clean.client.get("/v1/models").json()["data"]] == ["sample", "first", "whole"]
    figures = clean.client.get("/metrics").text
    for name in ("sample", "whole"):
        assert f'vllm:generation_tokens_total{{engine="0",model_name="{name}"}}' in figures
    (core,) = set(clean.engine_pids()) - {first}
    os.kill(core, signal.SIGSTOP)  # or it would have answered by then
    with ThreadPoolExecutor(1) as pool:
        own = pool.submit(clean.client.post, "/models/whole/invoke", json=endless(900))
        clean.until(lambda: clean.metric("endpoint_requests_in_engine") == 1, 10)
        with streaming(clean, "sample", 200) as others:
            os.kill(core, signal.SIGKILL)
            assert list(others)[-1] == "data: [DONE]"
        failed = own.result()
        assert (failed.status_code, failed.json()["error"]["code"]) == (500, "model_failed")
        assert "POST /models" in failed.json()["error"]["message"]
    assert clean.ping()[0] == 200
    clean.until(lambda: clean.client.get("/models/whole").json().get("state") == "failed", 10)
    assert answer(clean, model="whole") == "model_failed"
    assert clean.client.delete("/models/whole").status_code == 200
    assert answer(clean, model="whole") == "model_not_found"


QUESTION = {"messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True}
COMPLETION = {"prompt": "Hello", "ignore_eos": True}
# A path, a body, and how it gives a number of tokens.
DEFAULTED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", COMPLETION, "max_tokens"),
    ("/v1/completions", {**COMPLETION, "logprobs": 1}, "max_tokens"),
    ("/v1/completions", {**COMPLETION, "echo": True}, "max_tokens"),
    ("/v1/completions", {**COMPLETION, "use_beam_search": True}, "max_tokens"),
    ("/v1/chat/completions", QUESTION, "max_tokens"),
    ("/v1/chat/completions", {**QUESTION, "logprobs": True}, "max_tokens"),
    ("/v1/chat/completions", {**QUESTION, "logprobs": True}, "max_completion_tokens"),
    ("/v1/responses", {"input": "Hello", "ignore_eos": True}, "max_output_tokens"),
    ("/invocations", {"inputs": "Hello"}, "max_new_tokens"),
]


def lengths(served: ServeProcess, path: str, body: dict[str, Any], name: str) -> tuple[int, int]:
    """How many tokens a body gets that asks for 30, and one that does not say. The model's default is 6."""
    found = []
    for asked in ({name: 30}, {}):
        document = {**body, **asked, "model": "whole"}
        if path == "/invocations":
            document = {**body, "model": "whole", "parameters": {"details": True, "ignore_eos_token": True, **asked}}
        reply = served.client.post(path, json=document).json()
        usage = reply.get("usage") or {"completion_tokens": reply["details"]["generated_tokens"]}
        found.append(usage.get("completion_tokens") or usage["output_tokens"])
    return found[0], found[1]


def loaded_beside(served: ServeProcess, whole: str) -> None:
    """Loads it as `whole`, asked for twice at once and while the first model is streaming."""
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(post_model, served, "whole", whole) for _ in range(2)]
        while not all(one.done() for one in loads):
            with streaming(served, "sample", 200) as lines:
                assert list(lines)[-1] == "data: [DONE]"
        assert sorted(one.result() for one in loads) == [200, 409], served.log[-4000:]
    assert len(served.engine_pids()) == 2


def post_model(served: ServeProcess, name: str, url: str) -> int:
    return served.client.post("/models", json={"model_name": name, "url": url}, timeout=STARTED_WITHIN).status_code


def endless(tokens: int, **fields: object) -> dict[str, object]:
    return {"prompt": "a", "max_tokens": tokens, "ignore_eos": True, **fields}


@contextmanager
def streaming(served: ServeProcess, model: str, tokens: int) -> Iterator[Iterator[str]]:
    """A stream that has begun; its lines from the second on."""
    body = endless(tokens, model=model, stream=True)
    with served.client.stream("POST", "/v1/completions", json=body) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        yield lines


def test_every_other_port_that_others_reach_lies_in_the_range_that_sagemaker_gives(clean: ServeProcess) -> None:
    process = psutil.Process(clean.process.pid)
    family = [process, *process.children(recursive=True)]
    listening = {
        (found.laddr.ip, found.laddr.port)
        for one in family
        for found in one.net_connections("tcp")
        if found.status == psutil.CONN_LISTEN
    }
    assert ("0.0.0.0", clean.port) in listening
    outside = {(ip, port) for ip, port in listening - {("0.0.0.0", clean.port)} if not 23100 <= port <= 23199}
    assert {ip for ip, _ in outside} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, outside
    if version() != "0.29.0":  # whose engine listens on loopback only
        assert any(23100 <= port <= 23199 for _, port in listening), listening


def test_an_isolated_endpoint_fetches_no_adapter(clean: ServeProcess) -> None:
    reply = clean.client.post("/adapters", json={"name": "far", "src": "s3://bucket/adapter"})
    assert reply.status_code == 400
    assert "ENDPOINT_NETWORK_ISOLATION" in reply.json()["error"]["message"]


def test_the_second_turn_of_a_session_finds_the_first_in_the_cache(clean: ServeProcess) -> None:
    header = "X-Amzn-SageMaker-Session-Id"
    turns = [{"role": "system", "content": "A session of its own. " * 60}]
    session, hits = "NEW_SESSION", []
    for name in ("hello", "thanks"):
        turns.append({"role": "user", "content": by_name(name).questions[0]})
        before = clean.metric("vllm:prefix_cache_hits_total")
        reply = clean.client.post("/invocations", json={"messages": turns, "temperature": 0}, headers={header: session})
        assert reply.status_code == 200
        hits.append(clean.metric("vllm:prefix_cache_hits_total") - before)
        turns.append(reply.json()["choices"][0]["message"])
        session = reply.headers.get("X-Amzn-SageMaker-New-Session-Id", session).partition(";")[0]
    assert hits[0] < 128 <= hits[1], hits  # a block of the CPU's cache is 128 tokens
    closed = clean.client.post("/invocations", json={"requestType": "CLOSE"}, headers={header: session})
    assert closed.headers["X-Amzn-SageMaker-Closed-Session-Id"] == session
    assert clean.client.post("/invocations", json={"prompt": "a"}, headers={header: session}).status_code == 400


def test_a_trace_id_leads_from_the_reply_to_the_log(clean: ServeProcess) -> None:
    attributes, inference = "X-Amzn-SageMaker-Custom-Attributes", "X-Amzn-SageMaker-Inference-Id"
    headers = {attributes: "trace_id=4711", inference: "inference-12"}
    body = {"prompt": "nobody reads this in the log", "max_tokens": 3, "stream": True}
    reply = clean.client.post("/invocations", json=body, headers=headers)
    assert reply.headers[attributes] == "trace_id=4711"

    def told() -> list[dict[str, Any]]:
        lines = clean.log.rpartition("\n")[0].splitlines()  # the last one may be half written
        return [json.loads(line) for line in lines if line.startswith("{") and "inference-12" in line]

    clean.until(lambda: len(told()) == 2, 5)
    began, ended = told()
    assert began["inference_id"] == ended["inference_id"] == "inference-12"
    assert began["trace_id"] == ended["trace_id"] == "4711"
    assert (ended["status"], ended["output_tokens"]) == (200, 3)
    assert "nobody reads this" not in clean.log


@pytest.mark.parametrize("stream", [False, True])
def test_the_log_has_the_finish_reason_of_vllms_way_too(clean: ServeProcess, stream: bool) -> None:
    inference = f"inference-end-{stream}"
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "ignore_eos": True, "logprobs": True}
    headers = {"X-Amzn-SageMaker-Inference-Id": inference}
    assert clean.client.post("/invocations", json={**body, "stream": stream}, headers=headers).status_code == 200

    def told() -> list[dict[str, Any]]:
        lines = clean.log.rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and inference in line]

    clean.until(lambda: len(told()) == 2, 5)
    assert [line.get("end") for line in told()] == [None, "length"]


def test_the_bare_models_requests_stay_its_own_on_vllms_way_too(clean: ServeProcess) -> None:
    """Requests for the adapter and for the bare model in one batch; `logprobs` are its serving classes'."""
    hello = by_name("hello")
    question = [{"role": "user", "content": hello.questions[0]}]

    def ask(model: str | None) -> str:
        body: dict[str, Any] = {"messages": question, "temperature": 0, "logprobs": True}
        if model:
            body["model"] = model
        reply = clean.client.post("/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        return str(reply.json()["choices"][0]["message"]["content"])

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, ["first", "sample", None, "first"] * 4))
    assert found == [AHOY["hello"], hello.answer, hello.answer, AHOY["hello"]] * 4
