"""On a Neuron line the adapters of the start are listed, and no other is taken. On a CPU one is updated from S3."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.engine.adapters.adapter_errors import AdapterExists, AdapterRequired, AdaptersFull, AdaptersUnsupported
from handler.engine.adapters.adapters import Adapters
from handler.errors import EngineBusy
from handler.neuron.engine_plan import EnginePlan
from handler.startup import adapter_loading
from handler.startup.adapter_loading import load_adapters
from tests.handler.waiting import WITHIN

LORA = SimpleNamespace(max_loras=2, max_lora_rank=16)


class ScriptedEngine:
    """An engine that was started with LoRA. Only the table of its adapters is real."""

    def __init__(self) -> None:
        self.facts = SimpleNamespace(adapters=(2, 16))
        self._llm = SimpleNamespace(facts=self.facts, lora_request=lambda *named: None)
        self.adapters: Any = None
        self.bring: Any = None

    def with_adapters(self, directory: Path, limit: int, bring: Any) -> Adapters:
        self.bring = bring
        adapters = Adapters(self._llm, SimpleNamespace(), ("model",), directory, limit, bring)  # type: ignore[arg-type]
        self.adapters = adapters
        return adapters


@pytest.mark.parametrize("line", ["nxdi-0.16", "native-0.29", "fork-0.9.1"])
def test_a_neuron_line_has_the_adapters_of_its_start(line: str, tmp_path: Path) -> None:
    engine, config = ScriptedEngine(), EndpointConfig(scratch=tmp_path, lora_modules={"sql": "/adapters/sql"})
    load_adapters(engine, EnginePlan(line, {}), config, {}, lambda stage: None)  # type: ignore[arg-type]
    assert engine.adapters.names() == ("sql",)
    assert engine.adapters.begin("sql").running == 1
    if line.startswith("nxdi"):  # its plugin ends its engine at a request without an adapter
        for name in (None, "", "model"):
            with pytest.raises(AdapterRequired) as error:
                engine.adapters.begin(name)
            assert (error.value.status, error.value.param) == (400, "model")
    for change in (partial(engine.adapters.load, "law", "/adapters/law"), partial(engine.adapters.unload, "sql")):
        with pytest.raises(AdaptersUnsupported, match="only at the start") as caught:
            change()
        assert caught.value.status == 501
    assert engine.adapters.names() == ("sql",)


def test_an_adapter_that_is_loaded_later_is_what_s3_has_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start has fetched the same address before, and another address too."""
    source, config, brought = "s3://bucket/sql", EndpointConfig(scratch=tmp_path), list[Path]()

    def load(adapters: Adapters, name: str, source: str) -> None:
        with engine.bring(source) as directory:
            brought.append(directory)

    latest = tmp_path / "latest"
    latest.mkdir()
    monkeypatch.setattr(adapter_loading, "download", lambda uri, config, field, *, latest: tmp_path / "latest")
    monkeypatch.setattr(adapter_loading, "model_modules", lambda model: None)
    monkeypatch.setattr(Adapters, "load_empty", lambda *arguments: None)
    monkeypatch.setattr(Adapters, "load", load)
    engine, moved = ScriptedEngine(), {source: str(tmp_path)}
    config = replace(config, lora_modules={"sql": source})
    load_adapters(engine, EnginePlan("cpu", {"model": "m"}), config, moved, lambda stage: None)  # type: ignore[arg-type]
    load(engine.adapters, "sql", source)
    assert brought == [tmp_path, latest]
    assert not latest.exists(), "a download is deleted when it has been copied, and what the start has fetched is not"
    latest.mkdir()
    with pytest.raises(ValueError, match="refused"), engine.bring(source):
        raise ValueError("refused")
    assert not latest.exists()
    latest.mkdir()
    (latest / "config.json").touch()
    with engine.bring(source):
        pass
    assert latest.exists(), "a model that is being loaded by another request"


class RecordingVllm:
    """Loads and removes adapters at once, on a loop of each call.

    :ivar calls: the names of the coroutines.
    """

    facts = SimpleNamespace(adapters=(2, 16))
    loop = SimpleNamespace(call_later=lambda *arguments: None)

    def __init__(self) -> None:
        self.calls: list[str] = []

    def lora_request(self, *named: object) -> object:
        return named

    async def add_lora(self, request: object) -> None: ...

    async def remove_lora(self, identity: int) -> None: ...

    def run(self, coroutine: Any, seconds: float) -> None:
        self.spawn(coroutine).result()

    def spawn(self, coroutine: Any) -> Future[None]:
        self.calls.append(coroutine.__name__)
        done: Future[None] = Future()
        try:
            done.set_result(asyncio.run(coroutine))
        except ValueError as error:
            done.set_exception(error)
        return done


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("handler.engine.adapters.adapters.copy_checked", lambda *arguments: None)
    return RecordingVllm()


def test_a_pin_is_reported_and_never_reaches_vllm(tmp_path: Path, vllm: Any) -> None:
    """A batch of other adapters than the pinned ones would end the engine. An update without `pin` keeps it."""
    adapters = Adapters(vllm, vllm, ("model",), tmp_path, 8, lambda source: nullcontext(Path(source)))
    assert all(adapters.load(name, f"/{name}", pin=True).pinned for name in ("a", "b", "c"))
    assert adapters.load("a", "/newer", replace=True).pinned
    assert not adapters.load("a", "/newer", pin=False).pinned
    assert vllm.calls == ["add_lora"] * 4 + ["retire"]


def test_a_download_keeps_nobody_from_changing_another_adapter(tmp_path: Path, vllm: Any) -> None:
    begun, done = threading.Event(), threading.Event()

    @contextmanager
    def bring(source: str) -> Iterator[Path]:
        if source == "s3://bucket/slow":
            begun.set()
            assert done.wait(WITHIN)
        yield Path(source)

    adapters = Adapters(vllm, vllm, ("model",), tmp_path, 2, bring)
    adapters.load("a", "/a")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(adapters.load, "slow", "s3://bucket/slow")
        assert begun.wait(WITHIN)
        with pytest.raises(AdaptersFull):
            adapters.load("b", "/b")  # the place is taken
        again = pool.submit(adapters.load, "slow", "s3://bucket/slow")  # waits for the first
        adapters.unload("a")
        adapters.load("b", "/b")
        assert adapters.names() == ("b",)
        done.set()
        assert slow.result(WITHIN) is again.result(WITHIN)
    assert adapters.names() == ("b", "slow")


def test_a_name_belongs_to_an_adapter_from_the_begin_of_its_load(tmp_path: Path, vllm: Any) -> None:
    """So that of an adapter and a model of one name, which are loaded at once, the second is refused."""
    seen: list[bool] = []

    @contextmanager
    def bring(source: str) -> Iterator[Path]:
        seen.append(adapters.has("a"))
        yield Path(source)

    adapters = Adapters(vllm, vllm, ("model",), tmp_path, 2, bring)
    with pytest.raises(AdapterExists):
        adapters.load("a", "/a", taken=adapters.has)  # it is reserved when this is asked
    assert (adapters.has("a"), seen) == (False, [])
    adapters.load("a", "/a")
    assert (adapters.has("a"), seen) == (True, [True])
    with pytest.raises(AdapterExists):
        adapters.load("a", "/a", again=False)


@pytest.mark.parametrize("ends", [None, ValueError("refused")])
def test_an_adapter_that_vllm_takes_too_long_for_does_not_stay(
    tmp_path: Path, vllm: Any, monkeypatch: pytest.MonkeyPatch, ends: Exception | None
) -> None:
    adding: Future[None] = Future()
    spawn = vllm.spawn
    monkeypatch.setattr("handler.engine.adapters.adapters.LOAD_SECONDS", 0.0)
    monkeypatch.setattr(vllm, "spawn", lambda coroutine: coroutine.close() or adding)
    adapters = Adapters(vllm, vllm, ("model",), tmp_path, 2, lambda source: nullcontext(Path(source)))
    with pytest.raises(EngineBusy):
        adapters.load("a", "/a")
    assert adapters.names() == ()
    monkeypatch.setattr(vllm, "spawn", spawn)
    adding.set_exception(ends) if ends else adding.set_result(None)
    assert vllm.calls == ["_free"]


def test_an_adapter_is_unloaded_although_it_still_loads(tmp_path: Path, vllm: Any) -> None:
    begun, done = threading.Event(), threading.Event()

    @contextmanager
    def bring(source: str) -> Iterator[Path]:
        begun.set()
        assert done.wait(WITHIN)
        yield Path(source)

    adapters = Adapters(vllm, vllm, ("model",), tmp_path, 2, bring)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(adapters.load, "slow", "/slow")
        assert begun.wait(WITHIN)
        removed = pool.submit(adapters.unload, "slow")
        done.set()
        slow.result(WITHIN)
        removed.result(WITHIN)
    assert adapters.names() == ()
