"""The core ends while an endpoint or a further model starts. Real start and engine; vLLM and its core are scripted."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import sample_model
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.engine.engine import Engine
from handler.engine.event_loop import LoopThread
from handler.engine.generation.generation import Generation, Sink
from handler.engine.generation.request_limits import RequestLimits
from handler.errors import EngineFailed
from handler.neuron.engine_plan import EnginePlan
from handler.startup import start as startup
from handler.startup.lifecycle import Lifecycle, ServingStatus
from handler.startup.multi_model import model_start
from handler.startup.multi_model.model_errors import ModelLoadFailed, ModelsFull
from tests.handler.artifacts.artifact_files import write_artifacts
from tests.handler.engine.scripted_vllm import CONTEXT, FACTS, ScriptedVllm
from tests.handler.loops import end_loop, on_loop
from tests.handler.scripted_tokenizer import VOCAB_SIZE


class EndingVllm(ScriptedVllm):
    """Its core ends at the first request.

    :ivar serves: the core answers requests, and ends at an adapter.
    :ivar status: of the core.
    :ivar said: what the core prints.
    :ivar meanwhile: is called when the core ends.
    """

    serves = False
    status = -9
    said = b""
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    async def add(self, generation: Generation, params: Any, sink: Sink, lora: object = None) -> str:
        if not self.serves:
            self._end()
        sink.push("", [1], "length", None)
        return generation.request_id

    async def add_lora(self, request: Any) -> None:
        self._end()

    def lora_request(self, *arguments: Any) -> Any:
        return arguments

    def _end(self) -> NoReturn:
        os.write(2, self.said)
        self.dead, self.exits = True, [self.status]
        self.meanwhile()
        raise EngineFailed("its process ended")


class Launches:
    """Takes the place of `launch`."""

    def __init__(self, loop: LoopThread) -> None:
        self.loop = loop
        self.vllms: list[EndingVllm] = []
        self.script: dict[str, Any] = {}

    def __call__(self, plan: EnginePlan | None, *arguments: object, **named: object) -> Engine:
        if plan is not None and "NEURON_COMPILED_ARTIFACTS" in plan.env:
            write_artifacts(Path(plan.env["NEURON_COMPILED_ARTIFACTS"], "as-compiled"))
        vllm: Any = on_loop(self.loop, EndingVllm)
        vars(vllm).update(self.script)
        self.vllms.append(vllm)
        return Engine(vllm, self.loop, ["sample"], 5.0, RequestLimits(CONTEXT, VOCAB_SIZE))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    launches = Launches(LoopThread.start("test-loop"))
    for name in ("use_environment", "import_vllm"):
        monkeypatch.setattr(startup, name, lambda *_, **__: None)
    monkeypatch.setattr(startup, "WaitingProcess", lambda environment: SimpleNamespace(end=lambda: None))
    monkeypatch.setattr(startup, "_freeze_garbage_collector", lambda: None)
    monkeypatch.setattr(model_start, "use_environment", lambda plan: None)
    for module in (startup, model_start):
        monkeypatch.setattr(module, "launch", launches)
    yield launches
    end_loop(launches.loop)


def started(launches: Launches, scratch: Path, *, drained: bool = False, **settings: Any) -> Service:
    """:param drained: SIGTERM comes before the core ends."""
    config = EndpointConfig(model=str(sample_model.path()), line="cpu", scratch=scratch, **settings)
    service = Service.of(config, loop=launches.loop)
    if drained:
        launches.script["meanwhile"] = service.lifecycle.drain
    startup.start(service)
    return service


def test_a_core_that_is_killed_in_the_warm_up_gives_its_signal_and_the_fix(launches: Launches, tmp_path: Path) -> None:
    service = started(launches, tmp_path)
    status = service.lifecycle.status
    assert status.state is ServingStatus.FAILED
    assert re.search("'warm up'.*SIGKILL", status.reason)
    assert "more memory" in status.reason
    assert "try again" not in status.reason, "nothing replaces it"
    assert launches.vllms[0].stopped
    assert service.engine is None


@pytest.mark.parametrize(
    "printed_by_the_client", [b"", b"EngineDeadError: EngineCore encountered an issue. See (above)\n"]
)
def test_what_the_core_printed_last_is_the_reason(
    launches: Launches, tmp_path: Path, printed_by_the_client: bytes
) -> None:
    launches.script = {"status": 1, "said": b"RuntimeError: the sampler is broken\n" + printed_by_the_client}
    assert "RuntimeError: the sampler is broken" in started(launches, tmp_path).lifecycle.status.reason


def test_a_core_that_printed_nothing_gives_its_status(launches: Launches, tmp_path: Path) -> None:
    launches.script = {"status": 3}
    assert "status 3" in started(launches, tmp_path).lifecycle.status.reason


def test_a_core_that_ends_while_it_loads_an_adapter_is_not_the_adapters_fault(
    launches: Launches, tmp_path: Path
) -> None:
    launches.script = {"serves": True, "facts": replace(FACTS, adapters=(4, 8))}
    modules = {"one": str(sample_model.adapter_path())}
    status = started(launches, tmp_path, enable_lora=True, lora_modules=modules).lifecycle.status
    assert status.stage == "load adapters"
    assert "SIGKILL" in status.reason
    assert "Fix the adapter" not in status.reason


def test_a_compile_that_ends_in_the_warm_up_is_tried_again_and_then_remembered(
    launches: Launches, tmp_path: Path
) -> None:
    launches.script = {"status": -11}
    store = f"file://{tmp_path}/store"
    first = started(launches, tmp_path / "one", artifact_store=store)
    assert "SIGSEGV" in first.lifecycle.status.reason
    assert len(launches.vllms) == 2, "a crash may not happen again"
    assert all(vllm.stopped for vllm in launches.vllms)
    second = started(launches, tmp_path / "two", artifact_store=store)
    assert "SIGSEGV" in second.lifecycle.status.reason
    assert "not tried again" in second.lifecycle.status.reason
    assert len(launches.vllms) == 2


def test_a_compile_that_sigterm_ends_is_not_remembered_as_a_failure(launches: Launches, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    started(launches, tmp_path / "one", drained=True, artifact_store=store)
    assert len(launches.vllms) == 1, "the process ends, so nothing is tried again"
    launches.script = {"status": 3}
    second = started(launches, tmp_path / "two", artifact_store=store)
    assert "status 3" in second.lifecycle.status.reason, "it has compiled itself"


@pytest.mark.parametrize("step", ["warm_up", "fetch_model"])
def test_sigterm_in_a_start_is_a_drain_and_no_failure(
    launches: Launches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """The worker ends the core, and whatever the start does then fails."""

    def ended(*_: object) -> None:
        service.lifecycle.drain()
        raise OSError("the process is ending")

    config = EndpointConfig(model=str(sample_model.path()), line="cpu", scratch=tmp_path)
    failures: list[str] = []
    service = Service.of(config, Lifecycle(failed=failures.append), launches.loop)
    monkeypatch.setattr(startup, step, ended)
    with caplog.at_level(logging.INFO):
        startup.start(service)
    assert service.lifecycle.status.state is ServingStatus.DRAINING
    assert failures == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_what_was_compiled_into_an_empty_directory_is_there_once_the_engine_is_warm(
    launches: Launches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "require_line", lambda *_: None)
    directory = tmp_path / "compiled"
    environ = {"ENDPOINT_LINE": "nxdi-0.16", "ENDPOINT_INSTANCE": "ml.trn1.32xlarge", "ENDPOINT_SCRATCH": str(tmp_path)}
    config = load({**environ, "NEURON_COMPILED_ARTIFACTS": str(directory)}, model=str(sample_model.path()))
    startup.start(Service.of(config, loop=launches.loop))
    assert not (directory / "as-compiled").exists(), "the warm-up has failed"
    for descriptor in list(Path("/proc/self/fd").iterdir()):  # as the end of that process
        if descriptor.resolve().parent == directory:
            os.close(int(descriptor.name))
    launches.script = {"serves": True}
    service = Service.of(config, loop=launches.loop)
    startup.start(service)
    assert service.lifecycle.status.state is ServingStatus.READY
    assert [path.name for path in directory.iterdir()] == ["as-compiled"]


def loaded(launches: Launches) -> Engine:
    prepared: Any = SimpleNamespace(name="one", plan=EnginePlan("cpu", {}), config=None)
    return model_start.start(launches.loop, prepared)


def test_a_further_models_core_that_is_killed_in_the_warm_up_asks_for_room(launches: Launches) -> None:
    with pytest.raises(ModelsFull, match="SIGKILL") as caught:
        loaded(launches)
    assert caught.value.status == 507
    assert launches.vllms[0].stopped


def test_a_further_models_core_that_breaks_in_the_warm_up_gives_its_reason(launches: Launches) -> None:
    launches.script = {"status": 1, "said": b"RuntimeError: the sampler is broken\n"}
    with pytest.raises(ModelLoadFailed, match="the sampler is broken"):
        loaded(launches)
