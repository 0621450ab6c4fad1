"""The command line of a further node."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from handler.engine.headless_node import CPU_WORKER_FIXES, address_of, headless_words
from handler.errors import SettingError

SPREAD: dict[str, Any] = {"model": "/m", "nnodes": 4, "master_addr": "first", "tensor_parallel_size": 2}


def words(arguments: dict[str, Any], rank: int = 1, line: str = "native-0.24") -> list[str]:
    return headless_words(arguments, rank, line=line, resolve={"first": "10.0.0.1"}.__getitem__)


def test_a_node_has_the_engines_arguments_and_its_own_rank() -> None:
    more = {"enforce_eager": True, "enable_prefix_caching": False, "quantization": None, "served_model_name": ["x"]}
    more["disable_log_stats"] = False  # vLLM's command line has no --no-disable-log-stats
    made = words({**SPREAD, **more, "additional_config": {"neuron_config": {"a": [1]}}}, rank=3)
    assert made[-9:-7] == ["/m", "--headless"]
    assert set(made[-7:]) == {
        "--nnodes=4",
        "--master-addr=10.0.0.1",
        "--node-rank=3",
        "--tensor-parallel-size=2",
        "--enforce-eager",
        "--no-enable-prefix-caching",
        '--additional-config={"neuron_config": {"a": [1]}}',
    }


def test_data_parallel_engines_are_counted_from_the_rank() -> None:
    engines = {"model": "/m", "data_parallel_size": 8, "data_parallel_size_local": 2, "data_parallel_address": "first"}
    assert "--data-parallel-start-rank=6" in words(engines, rank=3)
    assert "--data-parallel-address=10.0.0.1" in words(engines, rank=3)
    engines["master_addr"] = engines.pop("data_parallel_address")
    assert "--master-addr=10.0.0.1" in words(engines, rank=3)


@pytest.mark.parametrize(
    "engines",
    [
        {"nnodes": 2, "master_addr": "first"},
        {"data_parallel_size": 4, "data_parallel_size_local": 2, "data_parallel_address": "first"},
    ],
)
def test_a_rank_is_that_of_a_node(engines: dict[str, Any]) -> None:
    """Before anything is fetched. vLLM asserts it after that, or the first node's start ends."""
    assert words({"model": "/m", **engines}, rank=1)
    with pytest.raises(SettingError, match=r"2 is not the rank of a node.*Give at most 1"):
        words({"model": "/m", **engines}, rank=2)


@pytest.mark.parametrize("local", [None, 0])
def test_engines_are_not_counted_without_those_of_a_node(local: int | None) -> None:
    engines = {"model": "/m", "data_parallel_size": 8, "data_parallel_size_local": local}
    with pytest.raises(SettingError, match="data_parallel_size_local"):
        words({**engines, "data_parallel_address": "first"})


@pytest.mark.parametrize(("line", "there"), [("cpu", True), ("native-0.24", False)])
def test_the_workers_of_an_engine_are_alike(line: str, there: bool) -> None:
    assert (f"--worker-extension-cls={CPU_WORKER_FIXES}" in words(SPREAD, line=line)) is there


@pytest.mark.parametrize("change", [{"nnodes": 1}, {"nnodes": None}, {"master_addr": None}, {"nnodes": True}])
def test_without_other_nodes_it_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="SM_VLLM_MASTER_ADDR"):
        words({**SPREAD, **change})


def test_a_name_that_stays_unknown_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_of("127.0.0.1") == "127.0.0.1"

    def unknown(*name: object, **options: object) -> None:
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    now = iter([0.0, 1000.0])
    with pytest.raises(SettingError, match="'first' has no address"):
        address_of("first", clock=lambda: next(now))


@pytest.mark.parametrize(
    ("addresses", "chosen"), [(["2001:db8::4"], "2001:db8::4"), (["2001:db8::4", "10.0.0.4"], "10.0.0.4")]
)
def test_a_cluster_with_ipv6_has_nodes(addresses: list[str], chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_of("::1") == "::1"
    families = {True: socket.AF_INET6, False: socket.AF_INET}
    named = [(families[":" in each], socket.SOCK_STREAM, 6, "", (each, 0)) for each in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *name, **options: named)
    assert address_of("first") == chosen


@pytest.mark.parametrize("name", ["engine-0..svc", "a" * 70])
def test_what_is_no_host_name_is_told_at_once(name: str) -> None:
    with pytest.raises(SettingError, match="has no address"):
        address_of(name)
