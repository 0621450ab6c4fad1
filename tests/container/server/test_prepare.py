"""What `serve` fills in of other software's variables before the engine starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from container.serve import check_batch_store, check_shared_memory, prepare
from handler.config.loading.config_loader import load
from handler.errors import SettingError


def prepared(settings: dict[str, str], environ: dict[str, str] | None = None) -> dict[str, str]:
    found = dict(environ or {})
    prepare(found, load({"ENDPOINT_MODEL": "org/model", **settings}))
    return found


def test_alone_nothing_listens_beyond_loopback() -> None:
    assert prepared({})["GLOO_SOCKET_IFNAME"] == "lo"
    assert prepared({}, {"GLOO_SOCKET_IFNAME": "eth1"})["GLOO_SOCKET_IFNAME"] == "eth1"


@pytest.mark.parametrize(
    "settings",
    [{"SM_VLLM_NNODES": "2"}, {"SM_VLLM_DATA_PARALLEL_ADDRESS": "10.0.0.1"}, {"ENDPOINT_NODES": "2"}],
)
def test_other_nodes_can_be_reached(settings: dict[str, str]) -> None:
    assert "GLOO_SOCKET_IFNAME" not in prepared(settings)


def test_shared_memory_that_cannot_be_written_to_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_shared_memory(str(tmp_path))
    check_shared_memory(str(tmp_path / "none"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as root, only a read-only mount answers so
    with pytest.raises(SettingError, match=f"{tmp_path}.*Mount it writable"):
        check_shared_memory(str(tmp_path))


def test_a_batch_store_that_cannot_be_written_to_is_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("/proc/x", "relative/directory", str(tmp_path / "file" / "below")):
        with pytest.raises(SettingError, match="ENDPOINT_BATCH_STORE"):
            check_batch_store(load({"ENDPOINT_MODEL": "org/model", "ENDPOINT_BATCH_STORE": place}))
    for place in ("", str(tmp_path / "a" / "b"), "s3://bucket/prefix"):
        check_batch_store(load({"ENDPOINT_MODEL": "org/model", "ENDPOINT_BATCH_STORE": place}))
