"""The way of a start over the stand-in for the native plugin: compile, publish, and restore on a second machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from neuron_fleet import ANSWER, NATIVE, QUESTION, Fleet, answered, failed
from sampling_requests import found
from serve_process import ServeProcess

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

    other = failed(fleet.serve("two", ENDPOINT_ON_MISS="fail", SM_VLLM_MAX_NUM_SEQS="8"))
    assert "max_num_seqs 4 -> 8" in other


def test_a_compile_that_fails_says_why(fleet: Fleet) -> None:
    reason = failed(fleet.serve("three", "broken", STAND_IN_FAULT="oom"))
    assert "[F137] neuronx-cc was forcibly killed" in reason
    assert "more host memory" in reason
