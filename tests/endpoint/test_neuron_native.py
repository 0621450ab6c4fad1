"""The way of a start over the stand-in for the native plugin: compile, publish, and restore on a second machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.endpoint.neuron_fleet import ANSWER, NATIVE, QUESTION, Fleet, answered, failed
from tests.endpoint.serve_process import ServeProcess

PLAIN: dict[str, Any] = {"prompt": [300, 17, 900, 41, 5], "temperature": 0, "max_tokens": 24, "ignore_eos": True}
# So hot that two replies differ, unless a parameter narrows the choice to the likeliest token.
HOT = {**PLAIN, "temperature": 2.0}
NARROWING: dict[str, dict[str, Any]] = {"top_k": {"top_k": 1}, "top_p": {"top_p": 1e-6}, "min_p": {"min_p": 1.0}}
CHANGING: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2.0},
    "repetition_penalty": {"repetition_penalty": 0.01},
    "presence_penalty": {"presence_penalty": -2.0},
    "frequency_penalty": {"frequency_penalty": -2.0},
    "logit_bias": {"logit_bias": {"7": 100}},
    "allowed_token_ids": {"allowed_token_ids": [7, 8]},
}


def found(served: ServeProcess) -> dict[str, str]:
    """Parameter -> `counts`, `ignored`, or the status of a rejected request."""
    plain = _text(served, PLAIN)
    assert _text(served, HOT) != plain
    seen = {name: _verdict(_text(served, {**PLAIN, **given}), plain, same=False) for name, given in CHANGING.items()}
    seen |= {name: _verdict(_text(served, {**HOT, **given}), plain, same=True) for name, given in NARROWING.items()}
    seeded = [_text(served, {**HOT, "seed": 1}) for _ in range(2)]
    seen["seed"] = _verdict(seeded[0], seeded[1], same=True)
    seen["bad_words"] = _verdict(_chat(served, bad_words=["/"]), ANSWER, same=False)
    seen["min_tokens"] = _verdict(_chat(served, min_tokens=80), ANSWER, same=False)
    choice = _chat(served, structured_outputs={"choice": ["red", "blue"]})
    seen["grammar"] = choice if isinstance(choice, int) else "counts" if choice in ("red", "blue") else "ignored"
    for name in ("logprobs", "prompt_logprobs"):
        reply = served.client.post("/v1/completions", json={**PLAIN, name: 1})
        has = reply.status_code == 200 and bool(reply.json()["choices"][0].get(name))
        seen[name] = reply.status_code if reply.status_code != 200 else "counts" if has else "ignored"
    return {name: str(verdict) for name, verdict in seen.items()}


def _text(served: ServeProcess, body: dict[str, Any]) -> str | int:
    """The generated text, or the status of a rejected request."""
    reply = served.client.post("/v1/completions", json=body)
    return str(reply.json()["choices"][0]["text"]) if reply.status_code == 200 else reply.status_code


def _chat(served: ServeProcess, **given: Any) -> str | int:
    reply = served.client.post("/invocations", json={**QUESTION, "max_tokens": 120, **given})
    return str(reply.json()["choices"][0]["message"]["content"]) if reply.status_code == 200 else reply.status_code


def _verdict(text: str | int, other: str | int, *, same: bool) -> str | int:
    if isinstance(text, int):
        return text
    return "counts" if (text == other) is same else "ignored"


pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("native"), NATIVE, "native")
    yield made
    made.close()


def counted(served: ServeProcess) -> set[str]:
    """The sampling parameters that count. Every other one is a 400: none is ignored."""
    seen = found(served)
    assert set(seen.values()) == {"counts", "400"}, seen
    return {name for name, verdict in seen.items() if verdict == "counts"}


def test_compiled_once_and_restored_where_a_compile_is_forbidden(fleet: Fleet) -> None:
    served = fleet.serve("one")
    assert answered(served) == ANSWER
    assert "Compiling ('prefill'" in served.log
    assert "artifact_published" in served.log
    assert fleet.manifests() == ["graph"]

    # Another machine of the same image: the same paths, and nothing on its disk.
    shutil.rmtree(fleet.directory / "one")
    restored = fleet.serve("one", ENDPOINT_ON_MISS="fail")
    restored.wait_port()
    restored.wait_ready()
    assert counted(restored) == {"temperature", "top_k", "top_p"}
    with restored.client.stream("POST", "/invocations", json={**QUESTION, "stream": True}) as stream:
        assert "".join(stream.iter_text()).rstrip().endswith("data: [DONE]")
    assert answered(restored) == ANSWER
    assert "artifact_restored" in restored.log
    assert "Compiling" not in restored.log


CPU = {"VLLM_NEURON_CPU_COMPILE": "1"}
BUCKETS = '{"neuron_config": {"num_seqs_buckets": %s}}'


def test_a_compile_without_devices_serves_an_instance_with_them(fleet: Fleet) -> None:
    """On a CPU nothing runs and nothing is ready. The instance finds its key there, and compiles and traces nothing."""
    own = {"ENDPOINT_LINE": "native-0.29", "SM_VLLM_ADDITIONAL_CONFIG": BUCKETS % "[1, 4]"}
    # On a busy machine the CPU takes long for its first grammar.
    own |= {"ENDPOINT_STRUCTURED_OUTPUTS": "true", "ENDPOINT_LOGPROBS": "true", "ENDPOINT_STALL": "300"}
    own["ENDPOINT_DEADLINE"] = "300"
    compiling = fleet.serve("same", "from-cpu", **CPU, **own)
    compiling.wait_port()
    compiling.until(lambda: compiling.stage() == "compiled", 300)
    assert compiling.ping()[0] == 503
    assert compiling.terminate() == 0, compiling.log
    assert "Compiling ('decode', 4)" in compiling.log
    assert "warm up" not in compiling.log

    # Another machine of the same image: the same paths.
    shutil.rmtree(fleet.directory / "same")
    served = fleet.serve("same", "from-cpu", ENDPOINT_ON_MISS="fail", **own)
    served.wait_port()
    served.wait_ready()
    assert counted(served) == {"temperature", "top_k", "top_p", "grammar", "logprobs"}
    assert answered(served) == ANSWER
    assert "Compiling" not in served.log
    assert "Tracing" not in served.log
    restored = next(json.loads(line) for line in served.log.splitlines() if '"artifact_restored"' in line)
    assert "are equal: " in restored["message"]
    assert "platform trn2" in restored["message"]
    assert "num_seqs_buckets [1,4]" in restored["message"]

    changed = fleet.serve(
        "same", "from-cpu", ENDPOINT_ON_MISS="fail", **{**own, "SM_VLLM_ADDITIONAL_CONFIG": BUCKETS % "[2, 4]"}
    )
    assert "num_seqs_buckets [1,4] -> [2,4]" in failed(changed)


def test_what_counts_where_the_cpu_samples(fleet: Fleet) -> None:
    served = fleet.serve("four", "", ENDPOINT_ON_DEVICE_SAMPLING="false")
    served.wait_port()
    served.wait_ready()
    penalties = {"repetition_penalty", "presence_penalty", "frequency_penalty"}
    others = {"seed", "bad_words", "allowed_token_ids", "min_tokens", "logprobs"}
    assert counted(served) == {"temperature", "top_k", "top_p", *penalties, *others}
    assert served.terminate() == 0
