"""The way of a start over the stand-in for the native plugin: compile, publish, and restore on a second machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from tests.endpoint.neuron_fleet import ANSWER, NATIVE, QUESTION, Fleet, answered, failed
from tests.endpoint.sampling_requests import found
from tests.endpoint.serve_process import ServeProcess

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
