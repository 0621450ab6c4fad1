"""The native plugin's compile cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from neuron_stand_in.native.compile_cache import compile_missing, graphs
from neuron_stand_in.settings import Fault, StandInSettings

NEURON_CONFIG = {"num_batched_tokens_buckets": [128, 512], "num_seqs_buckets": [4]}
TODO = graphs(NEURON_CONFIG, 2048, 8)


def compiled(root: Path, settings: StandInSettings | None = None, key: object = 1, **environment: str) -> int:
    return compile_missing(
        {"key": key}, TODO, settings or StandInSettings(), {"VLLM_CACHE_ROOT": str(root), **environment}
    )


def directories(root: Path) -> list[Path]:
    return sorted((root / "neuron" / "compile_cache").iterdir())


def test_a_graph_for_each_bucket() -> None:
    assert TODO == [("prefill", 128), ("prefill", 512), ("decode", 4)]
    assert graphs({}, 2048, 8) == [("prefill", 2048), ("decode", 8)]


def test_the_keys_of_the_older_plugin_are_unknown_here(caplog: pytest.LogCaptureFixture) -> None:
    graphs({"tp_degree": 8}, 2048, 8)
    assert "tp_degree" in caplog.text


def test_each_graph_is_compiled_once(tmp_path: Path) -> None:
    assert compiled(tmp_path) == 3
    assert compiled(tmp_path) == 0
    assert compiled(tmp_path, key=2) == 3
    assert len(directories(tmp_path)) == 6
    assert all(len(path.name) == 32 for path in directories(tmp_path))


@pytest.mark.parametrize("variable", ["VLLM_NEURON_DISABLE_WARMUP_COMPILE", "NEURON_LIBTORCH_ASSERT_CACHE_HIT"])
def test_a_miss_fails_where_the_compile_is_forbidden(tmp_path: Path, variable: str) -> None:
    forbid = {variable: "1"}
    with pytest.raises(RuntimeError, match=variable):
        compiled(tmp_path, None, **forbid)
    compiled(tmp_path)
    assert compiled(tmp_path, None, **forbid) == 0


def test_an_interrupted_compile_is_compiled_again(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        compiled(tmp_path, StandInSettings(fault=Fault.EXCEPTION))
    assert not (directories(tmp_path)[0] / ".compilation_complete").exists()
    assert compiled(tmp_path) == 3


@pytest.mark.parametrize(
    ("environment", "traced"),
    [({}, 6), ({"VLLM_NEURON_BACKEND": "neuron_native"}, 3), ({"VLLM_NEURON_BACKEND": "xla"}, 6)],
)
def test_traces_are_kept_where_the_route_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, environment: dict[str, str], traced: int
) -> None:
    caplog.set_level("INFO", "neuron_stand_in")
    compiled(tmp_path, None, **environment)
    assert compiled(tmp_path, None, **environment) == 0
    assert caplog.text.count("Tracing") == traced
