from __future__ import annotations

import os
from pathlib import Path

import pytest

from handler.neuron.hardware import host_memory

MIB = 1024 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of 1000 MiB, 800 of them available, without cgroups."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal: 1024000 kB\nMemFree: 100 kB\nMemAvailable: 819200 kB\nHugePages_Total: 0\n"
    )
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_of_the_machine(root: Path) -> None:
    assert host_memory.total(root) == 1000 * MIB
    assert host_memory.available(root) == 800 * MIB
    assert host_memory.nodes(root) == 1


@pytest.mark.parametrize(
    ("limit", "left"), [("max", 800), (str(500 * MIB), 500 - 300 + 50), (str(100 * MIB), 0), (str(9000 * MIB), 800)]
)
def test_a_containers_limit_counts_where_it_leaves_less(root: Path, limit: str, left: int) -> None:
    stat = f"anon 5\ninactive_file {50 * MIB}\n"
    write(root, {"memory.max": limit, "memory.current": str(300 * MIB), "memory.stat": stat})
    assert host_memory.available(root) == left * MIB


def test_the_first_version_of_cgroups(root: Path) -> None:
    stat = f"inactive_file 0\ntotal_inactive_file {20 * MIB}\n"
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    texts = (str(500 * MIB), str(300 * MIB), stat)
    write(root, {f"memory/{name}": text for name, text in zip(names, texts, strict=True)})
    assert host_memory.available(root) == 220 * MIB


def test_what_processes_hold(root: Path) -> None:
    (root / "proc/12").mkdir()
    (root / "proc/12/statm").write_text("5000 300 20 1 0 400 0\n")
    assert host_memory.resident([12, 13], root) == 300 * os.sysconf("SC_PAGE_SIZE")


def test_processes_that_the_kernel_has_ended_for_memory(root: Path) -> None:
    assert host_memory.oom_kills(root) == 0
    write(root, {"memory.events": "low 0\noom 3\noom_kill 2\n"})
    (root / "proc/vmstat").write_text("pgpgin 5\noom_kill 4\n")
    assert host_memory.oom_kills(root) == 6


def test_this_machine_answers() -> None:
    assert 0 < host_memory.available() <= host_memory.total()
    assert host_memory.resident([os.getpid()]) > MIB


@pytest.mark.parametrize(("limit", "held"), [("max", 1000), (str(500 * MIB), 500), (str(9000 * MIB), 1000)])
def test_what_a_container_is_held_to(root: Path, limit: str, held: int) -> None:
    assert host_memory.limit(root) == 1000 * MIB
    write(root, {"memory.max": limit})
    assert host_memory.limit(root) == held * MIB
