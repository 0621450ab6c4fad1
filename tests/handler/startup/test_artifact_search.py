"""A start by way of an artifact store, with the engine scripted: what it would compile is written, and found again."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from flask import Flask
from neuron_stand_in.native.compile_cache import compile_missing, graphs
from neuron_stand_in.settings import StandInSettings

import sample_model
from container.routes import ping as health
from container.service import Service
from handler.artifacts.compile_caches import neff_cache
from handler.artifacts.lease import leased_compile
from handler.artifacts.lease.compile_errors import CompileFailed, CompileKilled, FailedBefore, NoEntry
from handler.artifacts.lease.lease import Contender, RealClock
from handler.artifacts.restore.restore_target import RestoreContents, RestoreTarget
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.config.endpoint_config import EndpointConfig
from handler.engine.engine import Engine
from handler.model.companions import Companions, fetch_companions
from handler.neuron.engine_plan import EnginePlan
from handler.startup import artifact_search as artifacts
from handler.startup.artifact_backends import FORBID
from handler.startup.artifact_search import engine_by_artifacts
from handler.storage.open_store import open_objects
from handler.storage.storage_errors import RestoreTimedOut
from handler.storage.transfer import download_directory
from handler.storage.transfer.download_directory import locked
from tests.handler.waiting import eventually

GRAPHS = [*graphs({}, 1024, 4), ("decode", 8)]
ENGINE = cast(Engine, object())


class Machine:
    """One instance: a scratch directory of its own, and the store that all share."""

    def __init__(self, root: Path, name: str, line: str = "nxdi-0.16", **settings: Any) -> None:
        config = EndpointConfig(
            model=str(sample_model.path()),
            instance="ml.trn2.48xlarge",
            scratch=root / name,
            artifact_store=f"file://{root}/store",
            **settings,
        )
        self.service = Service.of(config)
        self.plan = EnginePlan(line, {"model": config.model, "tensor_parallel_size": 2, "max_num_seqs": 4})
        self.compiled: list[int] = []

    def start(self, engine: Callable[[EnginePlan], Engine]) -> Engine | None:
        companions = fetch_companions(self.service.config)
        plan = companions.rewritten(self.plan)
        return engine_by_artifacts(self.service, plan, Path(self.service.config.model), companions, engine)

    def native(self, plan: EnginePlan, todo: list[tuple[str, int]] = GRAPHS) -> Engine:
        """Compiles as the native plugin does."""
        self.compiled.append(compile_missing({"key": 1}, todo, StandInSettings(), plan.env))
        return ENGINE

    def nxdi(self, plan: EnginePlan) -> Engine:
        """Loads what is there, or compiles."""
        directory = Path(plan.env["NEURON_COMPILED_ARTIFACTS"])
        if not (directory / "model.pt").exists():
            (directory / "neuron_config.json").write_text(json.dumps({"_name_or_path": plan.engine_args["model"]}))
            (directory / "model.pt").write_bytes(b"graph")
            self.compiled.append(1)
        return ENGINE


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "POLL", 0.02)


def ping(service: Service) -> dict[str, Any]:
    app = Flask("test")
    app.register_blueprint(health.blueprint(service))
    body: dict[str, Any] = app.test_client().get("/ping").get_json()
    return body


def test_the_native_plugins_graphs_are_kept_and_found(tmp_path: Path) -> None:
    first, second = (Machine(tmp_path, name, "native-0.24") for name in ("one", "two"))
    first.start(first.native)
    second.start(second.native)
    assert (first.compiled, second.compiled) == ([3], [0])
    assert second.service.artifacts.hits == 1
    assert first.service.artifacts.misses == 1


@pytest.mark.parametrize("variable", FORBID)
def test_an_endpoint_that_must_not_compile_starts_from_the_store_and_records_no_failure(
    tmp_path: Path, variable: str
) -> None:
    guarded, free, again = (Machine(tmp_path, name, "native-0.24") for name in ("one", "two", "three"))
    guarded.plan = again.plan = replace(guarded.plan, env={variable: "1"})
    with pytest.raises(NoEntry, match=FORBID[0]):
        guarded.start(guarded.native)
    free.start(free.native)
    again.start(again.native)
    assert (guarded.compiled, free.compiled, again.compiled) == ([], [3], [0])


@pytest.mark.parametrize(("on_miss", "forbidden"), [("compile", False), ("wait", True), ("fail", True)])
def test_a_graph_that_an_entry_lacks_is_compiled_only_by_who_may(tmp_path: Path, on_miss: str, forbidden: bool) -> None:
    maker, user = Machine(tmp_path, "one", "native-0.24"), Machine(tmp_path, "two", "native-0.24", on_miss=on_miss)
    maker.start(maker.native)
    seen: list[str | None] = []
    user.start(lambda plan: seen.append(plan.env.get(FORBID[0])) or ENGINE)  # type: ignore[func-returns-value]  # a list's
    assert seen == ["1" if forbidden else None]


def test_an_entry_of_the_native_plugin_holds_what_its_compile_made_and_nothing_else(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "one", "native-0.24")
    machine.start(machine.native)
    other = Machine(tmp_path, "one", "native-0.24")
    other.plan = replace(other.plan, engine_args={**other.plan.engine_args, "max_num_seqs": 8})
    other.start(lambda plan: other.native(plan, GRAPHS[:1]))
    third = Machine(tmp_path, "three", "native-0.24")
    third.plan = other.plan
    third.start(third.native)
    assert third.compiled == [2]  # the entry of 8 sequences has one graph, not the four that this machine has seen


def another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts from now on runs on another host."""
    (tmp_path / "boot_id").write_text("another boot")
    monkeypatch.setattr(download_directory, "BOOT_ID", tmp_path / "boot_id")


def test_graphs_that_a_failed_compile_finished_are_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Machine(tmp_path, "one", "native-0.24")

    def dies(plan: EnginePlan) -> Engine:
        first.native(plan, GRAPHS[:2])
        raise RuntimeError("Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': -9}")

    with pytest.raises(CompileKilled, match="SIGKILL"):
        first.start(dies)
    another_host(tmp_path, monkeypatch)
    second = Machine(tmp_path, "two", "native-0.24")
    second.start(second.native)
    assert second.compiled == [1]


def test_a_second_attempt_goes_on_from_the_graphs_that_the_first_one_finished(tmp_path: Path) -> None:
    """They are in the store by then: the second attempt may be killed together with this process."""
    machine = Machine(tmp_path, "one", "native-0.24")

    def crashes_once(plan: EnginePlan) -> Engine:
        if not machine.compiled:
            machine.native(plan, GRAPHS[:2])
            raise RuntimeError("Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': -9}")
        assert len(list((tmp_path / "store" / "neff" / "modules").rglob("*.json"))) == 2
        return machine.native(plan)

    assert machine.start(crashes_once) is ENGINE
    assert machine.compiled == [2, 1]


def test_finished_graphs_are_saved_while_a_compile_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neff_cache, "SAVE_EVERY", 0.01)
    machine, modules = Machine(tmp_path, "one", "native-0.24"), tmp_path / "store" / "neff" / "modules"

    def compiles(plan: EnginePlan) -> Engine:
        machine.native(plan, GRAPHS[:2])
        eventually(lambda: len(list(modules.rglob("*.json"))) == 2, 10)
        return machine.native(plan)

    machine.start(compiles)


def test_a_restore_has_the_room_of_a_dead_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "one")
    machine.start(machine.nxdi)
    machine.start(machine.nxdi)
    [compiled] = (tmp_path / "one" / "artifacts").glob("*.compiled-*")  # this process's engine may load it again
    monkeypatch.setattr(leased_compile, "_made", set())  # as in a new container, whose processes have the same pids
    machine.start(machine.nxdi)
    assert (machine.compiled, compiled.exists()) == ([1], False)


def test_a_poisoned_graph_does_not_outlive_the_start_that_made_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "one")
    cache = tmp_path / "one" / "neff-cache" / "neuronxcc-1.0" / "MODULE_1+a"
    cache.mkdir(parents=True)
    (cache / "model.log").write_text("error")

    def look(plan: EnginePlan) -> Engine:
        assert plan.env["NEURON_COMPILE_CACHE_URL"] == str(cache.parents[1])
        assert plan.env["BASE_COMPILE_WORK_DIR"] == "/tmp/nxd_model/"
        assert not cache.exists()
        return machine.nxdi(plan)

    machine.start(look)


@pytest.mark.parametrize("url", ["s3://cache/of/their/own", "/their/own"])
def test_a_cache_that_was_configured_stays_configured(tmp_path: Path, url: str) -> None:
    machine = Machine(tmp_path, "one")
    machine.plan = replace(machine.plan, env={"NEURON_COMPILE_CACHE_URL": url})
    seen: list[str] = []
    machine.start(lambda plan: seen.append(plan.env["NEURON_COMPILE_CACHE_URL"]) or machine.nxdi(plan))  # type: ignore[func-returns-value]
    assert seen == [url]


def test_a_failed_compile_is_remembered_by_its_own_words_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_DB_PASSWORD", "correct-horse")
    first, second = Machine(tmp_path, "one"), Machine(tmp_path, "two")

    def fails(plan: EnginePlan) -> Engine:
        os.write(2, b"connecting with correct-horse\n(EngineCore pid=7) ValueError: no kernel for this shape\n")
        raise RuntimeError("Engine core initialization failed. Failed core proc(s): {'EngineCore_DP0': 1}")

    with pytest.raises(CompileFailed, match="ValueError: no kernel for this shape"):
        first.start(fails)
    assert "no kernel for this shape" in capfd.readouterr().err  # passed on as well
    with pytest.raises(FailedBefore, match="no kernel for this shape") as caught:
        second.start(second.nxdi)
    assert "(EngineCore pid=7)" in caught.value.log
    assert "correct-horse" not in caught.value.log


def test_who_changes_the_setting_that_a_failed_compile_names_may_try_at_once(tmp_path: Path) -> None:
    first, same, changed = (Machine(tmp_path, name) for name in ("one", "two", "three"))
    for machine, share in ((first, 0.55), (same, 0.55), (changed, 0.9)):
        machine.plan = replace(machine.plan, engine_args={**machine.plan.engine_args, "gpu_memory_utilization": share})

    def fails(plan: EnginePlan) -> Engine:
        raise RuntimeError("No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.")

    with pytest.raises(CompileFailed):
        first.start(fails)
    with pytest.raises(FailedBefore, match="Try increasing `gpu_memory_utilization`"):
        same.start(same.nxdi)
    changed.start(changed.nxdi)
    assert (same.compiled, changed.compiled) == ([], [1])


def test_a_compile_that_is_killed_is_tried_again_on_this_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "one")
    left = [-9, 0]  # vLLM's core turns SIGTERM into status 0

    def killed(plan: EnginePlan) -> Engine:
        if left:
            raise RuntimeError(f"Failed core proc(s): {{'EngineCore_DP0': {left.pop()}}}")
        return machine.nxdi(plan)

    with pytest.raises(CompileKilled, match="SIGKILL"):
        machine.start(killed)
    assert left == []
    with pytest.raises(FailedBefore):
        machine.start(machine.nxdi)


def test_who_waits_for_another_says_so_in_ping_and_in_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scout, machine = Machine(tmp_path, "scout"), Machine(tmp_path, "one")

    def no_memory(plan: EnginePlan) -> Engine:
        raise RuntimeError("Failed core proc(s): {'EngineCore_DP0': -9}")

    with pytest.raises(CompileKilled):
        scout.start(no_memory)
    another_host(tmp_path, monkeypatch)
    lease = next((tmp_path / "store" / "leases" / "graph").iterdir())
    other = Contender(open_objects(f"file://{tmp_path}/store"), f"leases/graph/{lease.name}", RealClock(), "their-host")
    other.poll()  # the lease that the scout has released
    held = other.acquire()
    assert held is not None
    start = threading.Thread(target=machine.start, args=(machine.nxdi,))
    start.start()
    try:
        while "waiting" not in (body := ping(machine.service)):
            assert start.is_alive()
    finally:
        held.release()
        start.join(30)
    assert body["stage"] == "wait for another instance's artifacts"
    assert body["waiting"] == "their-host compiles them"
    assert "progress" not in body
    assert machine.compiled == [1]
    assert machine.service.artifacts.wait_seconds > 0
    assert machine.service.artifacts.compile_seconds > 0


def test_an_engine_that_is_warm_serves_although_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path, "one", "native-0.24")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("handler.artifacts.compile_caches.native_cache.shutil.copytree", full)
    assert machine.start(machine.native) is ENGINE
    assert "No space left on device" in caplog.text
    assert not (tmp_path / "store" / "manifests").exists()


def test_a_restore_ends_at_the_deadline_of_the_start(tmp_path: Path) -> None:
    first = Machine(tmp_path, "one")
    first.start(first.nxdi)
    late = Machine(tmp_path, "two", artifact_deadline=0.2)
    entered = threading.Event()
    target = tmp_path / "two" / "artifacts"
    target.mkdir(parents=True)

    def another_process(lock: Path) -> None:
        with locked(lock, lambda: None):
            entered.set()
            late_ended.wait(30)

    late_ended = threading.Event()
    key = next((tmp_path / "store" / "manifests" / "graph").iterdir()).stem
    place = RestoreTarget(target / key[:32], RestoreContents.of([]))
    other = threading.Thread(target=another_process, args=(place.lock,))
    other.start()
    try:
        assert entered.wait(30)
        with pytest.raises(RestoreTimedOut, match="another process"):
            late.start(late.nxdi)
    finally:
        late_ended.set()
        other.join()


def adapter(directory: Path, rank: int) -> Path:
    directory.mkdir(parents=True)
    (directory / "adapter_config.json").write_text(json.dumps({"r": rank}))
    return directory


def test_an_adapter_of_another_shape_is_another_key(tmp_path: Path) -> None:
    first = Machine(tmp_path, "one", lora_modules={"sql": str(adapter(tmp_path / "a", 8))})
    same = Machine(tmp_path, "two", lora_modules={"sql": str(adapter(tmp_path / "b", 8))})
    other = Machine(tmp_path, "three", lora_modules={"sql": str(adapter(tmp_path / "c", 16))})
    for machine in (first, same, other):
        machine.start(machine.nxdi)
    assert [machine.compiled for machine in (first, same, other)] == [[1], [], [1]]
    written = json.loads((tmp_path / "one" / "lora-adapters.json").read_text())
    paths = {"sql": str(tmp_path / "a")}
    assert written == {"lora-ckpt-dir": "/", "lora-ckpt-paths": paths, "lora-ckpt-paths-cpu": paths}


def test_adapters_that_the_owners_own_file_names_are_in_the_key_and_the_file_stays(tmp_path: Path) -> None:
    listing, seen = tmp_path / "adapters.json", list[Path]()

    def nxdi(machine: Machine, plan: EnginePlan) -> Engine:
        directory = Path(plan.env["NEURON_COMPILED_ARTIFACTS"])
        if machine.nxdi(plan) is ENGINE and machine.compiled:
            saved = {"neuron_config": {"lora_config": {"lora_ckpt_json": str(listing)}}}
            (directory / "neuron_config.json").write_text(json.dumps(saved))
        lora = json.loads((directory / "neuron_config.json").read_text())["neuron_config"]["lora_config"]
        seen.append(Path(lora["lora_ckpt_json"]))
        return ENGINE

    compiled = []
    for name, where, rank in (("one", "a", 8), ("two", "a", 8), ("three", "b", 16)):
        if not (tmp_path / where).exists():
            adapter(tmp_path / where, rank)
        paths = {"sql": where}
        document = {"lora-ckpt-dir": str(tmp_path), "lora-ckpt-paths": paths, "lora-ckpt-paths-cpu": paths}
        listing.write_text(json.dumps(document))
        machine = Machine(tmp_path, name, neuron_config={"lora_ckpt_json": str(listing)})
        machine.start(partial(nxdi, machine))
        compiled.append(machine.compiled)
    assert compiled == [[1], [], [1]]
    assert set(seen) == {listing}


def test_another_draft_is_another_key(tmp_path: Path) -> None:
    machines = [Machine(tmp_path, name, speculative_model=name) for name in ("org/one", "org/two")]
    for machine in machines:
        machine.start(machine.nxdi)
    assert [machine.compiled for machine in machines] == [[1], [1]]


def quantizing(machine: Machine, plan: EnginePlan) -> Engine:
    """As the plugin: loads, with the quantized weights that the saved file names, or makes them and compiles."""
    directory = Path(plan.env["NEURON_COMPILED_ARTIFACTS"])
    saved = directory / "neuron_config.json"
    place = str(plan.nxd_keys["quantized_checkpoints_path"])
    found = json.loads(saved.read_text())["neuron_config"]["quantized_checkpoints_path"] if saved.exists() else ""
    if not found or not Path(found, "model.safetensors").exists():
        assert Path(place).is_dir()  # NxD Inference pickles a file where there is none
        shutil.copy(sample_model.path() / "model.safetensors", place)
        Path(place, "model.safetensors.index.json").write_text("{}")
        saved.write_text(json.dumps({"neuron_config": {"quantized_checkpoints_path": place}}))
        (directory / "model.pt").write_bytes(b"graph")
        machine.compiled.append(1)
    return ENGINE


def quantizing_machine(root: Path, name: str, path: Path) -> Machine:
    machine = Machine(root, name, quantized_checkpoints_path=str(path))
    keys: Any = {"override_neuron_config": {"quantized": True, "quantized_checkpoints_path": str(path)}}
    machine.plan = replace(machine.plan, engine_args={**machine.plan.engine_args, "additional_config": keys})
    return machine


@pytest.mark.parametrize("directory", [False, True])
def test_quantized_weights_that_a_compile_makes_are_kept_with_it(tmp_path: Path, directory: bool) -> None:
    configured = tmp_path / "q"
    if directory:
        configured.mkdir()
    for name, compiled in (("one", [1]), ("two", []), ("one", [])):
        machine = quantizing_machine(tmp_path, name, configured)
        machine.start(partial(quantizing, machine))
        assert machine.compiled == compiled
        for kept in (tmp_path / name).glob("**/quantized/weights"):
            assert {path.name for path in kept.iterdir()} == {"model.safetensors", "model.safetensors.index.json"}
    store = ArtifactStore.open(f"file://{tmp_path}/store")
    weights = {file.path for entry in store.entries() if entry.kind == "weights" for file in entry.files}
    assert weights == {f"quantized/weights/model.safetensors{end}" for end in ("", ".index.json")}
    assert [*configured.parent.glob("q/*")] == []


def test_quantized_weights_that_are_there_are_an_input(tmp_path: Path) -> None:
    configured = tmp_path / "q"
    configured.mkdir()
    shutil.copy(sample_model.path() / "model.safetensors", configured)
    machine = quantizing_machine(tmp_path, "one", configured)
    places: list[Any] = []
    machine.start(lambda plan: places.append(plan.nxd_keys["quantized_checkpoints_path"]) or machine.nxdi(plan))  # type: ignore[func-returns-value]  # a list's
    assert places == [str(configured)]


def test_without_companions_a_plan_stays_as_it_is() -> None:
    plan = EnginePlan("cpu", {"a": ["s3://x", {"b": "s3://y"}], "c": 1})
    assert Companions().rewritten(plan) == plan
    moved = Companions(moved={"s3://y": "/y"}).rewritten(plan)
    assert moved.engine_args == {"a": ["s3://x", {"b": "/y"}], "c": 1}
