"""Whole models beside the one of the start: asked, listed, unloaded, and failing one by one. Engines are scripted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from werkzeug.test import Client

from container import application
from container.server import engine_watchdog as watching
from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.engine.adapters.adapters import Adapters
from handler.engine.event_loop import LoopThread
from handler.neuron.engine_plan import EnginePlan
from handler.startup.multi_model.memory_budget import GIB, MemoryNeed
from handler.startup.multi_model.model_errors import ModelLoadFailed
from handler.startup.multi_model.model_registry import ModelRegistry
from handler.startup.multi_model.model_start import PreparedModel
from tests.container.http_client import http_client
from tests.container.scripted_engine import SLOTS, ScriptedEngine
from tests.handler.waiting import WITHIN, eventually

NEED = MemoryNeed(0, 0, "a test")


class Starts:
    """Stands in the place of `handler.startup.multi_model.model_start`.

    :ivar engines: those that were started, by name, the latest last.
    :ivar ready: a start waits for it.
    :ivar needs: what a model needs, by its name.
    """

    def __init__(self) -> None:
        self.engines: dict[str, list[ScriptedEngine]] = {}
        self.begun = 0
        self.prepared: list[str] = []
        self.ready = threading.Event()
        self.ready.set()
        self.needs: dict[str, MemoryNeed] = {}
        self.failing = ""

    def prepare(self, config: EndpointConfig, name: str, path: Path) -> PreparedModel:
        self.prepared.append(name)
        return PreparedModel(name, config, EnginePlan("cpu", {}), self.needs.get(name, NEED))

    def start(self, loop: LoopThread, prepared: PreparedModel) -> Any:
        self.begun += 1
        assert self.ready.wait(WITHIN)
        if self.failing:
            raise ModelLoadFailed(prepared.name, self.failing)
        engine = ScriptedEngine(loop)
        engine.served_names = engine.base_names = (prepared.name,)
        self.engines.setdefault(prepared.name, []).append(engine)
        return engine


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
def models(service: Service, starts: Starts) -> ModelRegistry:
    service.config = replace(service.config, multi_model=True, max_models=2, drain=WITHIN)
    service.models = ModelRegistry(
        service.config,
        service.lifecycle,
        service.admission,
        lambda: service.engine,
        prepare=starts.prepare,
        start=partial(starts.start, service.loop),
    )
    return service.models


def configure(service: Service, **changes: Any) -> None:
    """Changes settings after the registry was made."""
    assert service.models is not None
    service.config = service.models.config = replace(service.config, **changes)


@pytest.fixture
def with_adapters(service: Service, engine: ScriptedEngine, tmp_path: Path) -> None:
    vllm: Any = SimpleNamespace(facts=SimpleNamespace(adapters=(2, 16)))
    engine.adapters = Adapters(
        vllm, service.loop, ("scripted",), tmp_path / "adapters", 2, lambda _: pytest.fail("asked")
    )


@pytest.fixture
def client(service: Service, models: ModelRegistry) -> Client:
    return http_client(service)


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


@pytest.fixture
def load(client: Client, url: str) -> Callable[[str], tuple[int, str]]:
    def loaded(name: str) -> tuple[int, str]:
        reply = client.post("/models", json={"model_name": name, "url": url})
        return reply.status_code, reply.get_json().get("error", {}).get("code", "")

    return loaded


@pytest.fixture(autouse=True)
def nothing_is_left(service: Service, starts: Starts, models: ModelRegistry) -> Iterator[None]:
    yield
    eventually(lambda: service.admission.count == 0)
    assert all(engine.unfinished() == 0 for found in starts.engines.values() for engine in found)


def said(client: Client, path: str = "/v1/completions", headers: Any = None, **fields: Any) -> tuple[int, str]:
    """The status and who has answered, or the error's code."""
    reply = client.post(path, json={"prompt": "a", **fields}, headers=headers)
    body = json.loads(reply.data)
    return reply.status_code, body["model"] if "choices" in body else body["error"]["code"]


def listed(client: Client) -> list[str]:
    found = client.get("/models").get_json()["models"]
    return [model["modelName"] + (":failed" if model.get("state") == "failed" else "") for model in found]


def test_a_request_is_answered_by_the_model_that_it_names(client: Client, load: Any, starts: Starts) -> None:
    assert load("one") == load("two") == (200, "")
    assert said(client) == said(client, model="scripted") == (200, "scripted")
    assert said(client, model="one") == said(client, "/models/one/invoke") == (200, "one")
    assert said(client, "/models/two/invoke", model="one") == (200, "two"), "the path outweighs the body"
    assert said(client, "/models/scripted/invoke", model="one") == (200, "scripted")
    target, adapter = "X-Amzn-SageMaker-Target-Model", "X-Amzn-SageMaker-Adapter-Identifier"
    assert said(client, "/invocations", {target: "one"}) == (200, "one")
    assert said(client, "/invocations", {adapter: "two"}, model="one") == (200, "two")
    assert said(client, "/models/one/invoke", {target: "two.tar.gz"}) == (200, "one"), "as SageMaker asks"
    assert said(client, "/invocations", model="three") == (404, "model_not_found")
    unknown = client.post("/v1/completions", json={"prompt": "a", "model": "three"}).get_json()["error"]["message"]
    assert "'scripted', 'one', 'two'" in unknown
    assert said(client, "/models/three/invoke") == (404, "model_not_loaded")
    assert [len(found) for found in starts.engines.values()] == [1, 1]
    assert [model["id"] for model in client.get("/v1/models").get_json()["data"]] == ["scripted", "one", "two"]
    assert client.get("/models/one").get_json()["modelName"] == "one"
    assert client.get("/models/three").status_code == 404


def test_json_lines_are_one_models(client: Client, load: Any) -> None:
    load("one")
    headers = {"Content-Type": "application/jsonlines"}
    reply = client.post("/models/one/invoke", data='{"prompt": "a"}\n{"prompt": "b"}', headers=headers)
    assert [json.loads(line)["model"] for line in reply.data.splitlines()] == ["one", "one"]


def test_a_models_end_ends_all_lines_and_stores_no_errors(
    service: Service, client: Client, load: Any, starts: Starts, models: ModelRegistry
) -> None:
    configure(service, drain=0.0)
    text = '{"prompt": "a"}' + 2 * '\n{"prompt": "<hold>"}'
    ends: list[tuple[str, Callable[[], object]]]
    ends = [("unloaded", lambda: client.delete("/models/unloaded")), ("failed", models.watch)]
    for name, end in ends:
        load(name)
        engine = starts.engines[name][0]
        with ThreadPoolExecutor(1) as pool:
            kind = {"Content-Type": "application/jsonlines"}
            running = pool.submit(client.post, f"/models/{name}/invoke", data=text, headers=kind)
            eventually(partial(lambda engine: engine.unfinished() == 2, engine))
            engine.is_dead = name == "failed"
            end()
            reply = running.result(WITHIN)
        assert (reply.status_code, reply.get_json()["error"]["code"]) == (
            500 + 3 * (name == "unloaded"),
            f"model_{name}",
        )


def test_of_two_loads_of_one_name_at_once_one_is_told_409(client: Client, load: Any, starts: Starts) -> None:
    starts.ready.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(load, "one")
        eventually(lambda: starts.begun == 1)
        assert load("one") == (409, "model_exists")
        assert said(client) == (200, "scripted"), "others are answered meanwhile"
        assert said(client, model="one") == (404, "model_not_loaded")
        assert listed(client) == []
        starts.ready.set()
        assert first.result(WITHIN) == (200, "")
    assert load("one") == load("scripted") == (409, "model_exists")
    gone = client.post("/models", json={"model_name": "one", "url": "/gone"})
    assert (gone.status_code, gone.get_json()["error"]["code"]) == (409, "model_exists")
    assert starts.begun == 1


@pytest.mark.parametrize("name", ["../up", "a b", "x" * 257, "-x"])
def test_a_name_that_is_none_is_refused(load: Any, name: str, starts: Starts) -> None:
    assert load(name) == (400, "invalid_value")
    assert starts.begun == 0


def test_a_load_that_fails_leaves_nothing(client: Client, load: Any, starts: Starts) -> None:
    starts.failing = "its weights are none"
    reply = client.post("/models", json={"model_name": "one", "url": "/nowhere"})
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (400, "invalid_model")
    assert load("one") == (500, "model_load_failed")
    assert listed(client) == []
    starts.failing = ""
    assert load("one") == (200, "")


def test_a_full_endpoint_says_507_and_names_the_one_that_was_not_used_for_longest(
    client: Client, load: Any, url: str
) -> None:
    load("one")
    load("two")
    said(client, model="one")
    reply = client.post("/models", json={"model_name": "three", "url": url})
    assert reply.status_code == 507
    assert "ENDPOINT_MAX_MODELS" in reply.get_json()["error"]["message"]
    assert "'two' is the least recently used" in reply.get_json()["error"]["message"]
    assert client.delete("/models/two").json == {"modelName": "two"}
    assert load("three") == (200, "")
    assert listed(client) == ["one", "three"]


def test_memory_that_is_not_there_is_a_507_with_the_setting(
    client: Client, load: Any, starts: Starts, url: str
) -> None:
    starts.needs["huge"] = MemoryNeed(0, 1 << 60, "VLLM_CPU_KVCACHE_SPACE=1073741824")
    reply = client.post("/models", json={"model_name": "huge", "url": url})
    assert reply.status_code == 507
    assert "VLLM_CPU_KVCACHE_SPACE=1073741824" in reply.get_json()["error"]["message"]
    assert starts.begun == 0


def test_what_an_engine_was_promised_is_no_room_for_the_next(
    monkeypatch: pytest.MonkeyPatch, load: Any, starts: Starts
) -> None:
    monkeypatch.setattr("handler.startup.multi_model.memory_budget.host_memory.available", lambda: 5 * GIB)
    starts.needs = dict.fromkeys(("one", "two"), MemoryNeed(GIB, GIB, "a test"))  # 3 GiB with its process
    assert load("one") == (200, "")
    assert load("two") == (507, "models_full")


def test_by_itself_it_unloads_the_one_that_was_not_used_for_longest(
    service: Service, client: Client, load: Any, starts: Starts
) -> None:
    configure(service, unload_least_used=True)
    load("one")
    load("two")
    said(client, model="one")
    assert load("three") == (200, "")
    assert listed(client) == ["one", "three"]
    assert starts.engines["two"][0].stopped


def test_a_model_that_answers_is_unloaded_after_the_idle_ones(
    service: Service, client: Client, load: Any, starts: Starts
) -> None:
    load("one")
    load("two")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(said, client, model="one", prompt="<gate:go>|b")
        eventually(starts.engines["one"][0].unfinished)
        said(client, model="two")
        reply = client.post(
            "/models", json={"model_name": "three", "url": client.get("/models/one").get_json()["modelUrl"]}
        )
        assert "'two' is the least recently used" in reply.get_json()["error"]["message"]
        configure(service, unload_least_used=True)
        assert load("three") == (200, "")
        starts.engines["one"][0].open("go")
        assert running.result(WITHIN) == (200, "one")
    eventually(lambda: service.admission.count == 0)
    assert listed(client) == ["one", "three"]
    assert load("four") == (200, "")
    assert listed(client) == ["one", "four"], "one was used last, by the request that has ended"


def test_a_model_that_would_not_even_fit_alone_unloads_none(
    service: Service, monkeypatch: pytest.MonkeyPatch, client: Client, load: Any, starts: Starts
) -> None:
    monkeypatch.setattr("handler.startup.multi_model.memory_budget.host_memory.available", lambda: 10 * GIB)
    configure(service, unload_least_used=True)
    starts.needs = {"huge": MemoryNeed(200 * GIB, 0, "a test")}
    load("one")
    load("two")
    assert load("huge") == (507, "models_full")
    assert listed(client) == ["one", "two"]


def test_a_model_that_is_being_unloaded_makes_the_room_for_the_next(
    service: Service, client: Client, load: Any, starts: Starts
) -> None:
    configure(service, unload_least_used=True)
    load("one")
    load("two")
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(said, client, model="one", prompt="<gate:go>|b")
        engine = starts.engines["one"][0]
        eventually(engine.unfinished)
        unloaded = pool.submit(client.delete, "/models/one")
        eventually(lambda: listed(client) == ["two"])
        loaded = pool.submit(load, "three")
        eventually(lambda: starts.prepared == ["one", "two", "three"])
        engine.open("go")
        assert running.result(WITHIN) == (200, "one")
        assert unloaded.result(WITHIN).status_code == 200
        assert loaded.result(WITHIN) == (200, "")
    assert listed(client) == ["two", "three"]


def test_a_load_goes_on_if_another_client_unloads_the_model_that_it_chose(
    service: Service, monkeypatch: pytest.MonkeyPatch, client: Client, load: Any
) -> None:
    unload = ModelRegistry.unload

    def unload_twice(registry: ModelRegistry, name: str) -> int:
        unload(registry, name)  # a DELETE that came first
        return unload(registry, name)

    configure(service, unload_least_used=True)
    load("one")
    load("two")
    monkeypatch.setattr(ModelRegistry, "unload", unload_twice)
    assert load("three") == (200, "")
    assert listed(client) == ["two", "three"]


def test_the_queue_is_behind_the_slots_of_all(service: Service, client: Client, load: Any) -> None:
    configure(service, max_queue=1, max_concurrent=100)
    load("one")
    assert service.admission.limit == 2 * SLOTS + 1
    client.delete("/models/one")
    assert service.admission.limit == SLOTS + 1


def test_a_core_that_dies_fails_its_own_requests_and_may_be_loaded_again(
    with_adapters: None, service: Service, client: Client, load: Any, starts: Starts, models: ModelRegistry
) -> None:
    load("one")
    engine = starts.engines["one"][0]
    with ThreadPoolExecutor(2) as pool:
        its_own = pool.submit(said, client, model="one", prompt="<hold>")
        anothers = pool.submit(said, client, prompt="<gate:go>|b")
        eventually(lambda: service.admission.count == 2 and engine.unfinished())
        engine.is_dead = True
        models.watch()
        assert its_own.result(WITHIN) == (500, "model_failed")
        service.engine.open("go")  # type: ignore[union-attr]
        assert anothers.result(WITHIN) == (200, "scripted")
    eventually(lambda: engine.stopped)
    assert client.get("/ping").status_code == 200
    shown = client.get("/models/one").get_json()
    assert (shown["state"], shown["reason"]) == ("failed", "its process ended")
    assert said(client, "/models/one/invoke") == said(client, model="one") == (500, "model_failed")
    assert 'endpoint_model_up{model="one"} 0.0' in client.get("/metrics").text
    assert [model["id"] for model in client.get("/v1/models").get_json()["data"]] == ["scripted"]
    assert client.post("/adapters", json={"name": "one", "src": "/nowhere"}).status_code == 409
    assert load("one") == (200, "")
    assert said(client, model="one") == (200, "one")
    assert 'endpoint_model_up{model="one"} 1.0' in client.get("/metrics").text


def test_a_failed_model_may_be_unloaded(client: Client, load: Any, starts: Starts, models: ModelRegistry) -> None:
    load("one")
    starts.engines["one"][0].silent = 1e6
    models.watch()
    assert listed(client) == ["one:failed"]
    assert client.delete("/models/one").status_code == 200
    assert client.delete("/models/one").status_code == 404
    eventually(lambda: starts.engines["one"][0].stopped)


def test_an_unload_waits_for_what_runs_and_takes_nothing_new(client: Client, load: Any, starts: Starts) -> None:
    load("one")
    engine = starts.engines["one"][0]
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(said, client, model="one", prompt="<gate:go>|b")
        eventually(lambda: engine.unfinished())
        unload = pool.submit(client.delete, "/models/one")
        eventually(lambda: listed(client) == [])
        assert said(client, model="one") == (404, "model_not_loaded")
        again = pool.submit(load, "one")  # waits until the first has gone
        assert not engine.stopped
        assert starts.begun == 1
        engine.open("go")
        assert running.result(WITHIN) == (200, "one")
        assert unload.result(WITHIN).json == {"modelName": "one"}
        assert again.result(WITHIN) == (200, "")
    assert engine.stopped
    assert starts.begun == 2


def test_an_unload_ends_what_does_not_end_in_time_and_says_so(
    service: Service, client: Client, load: Any, starts: Starts
) -> None:
    configure(service, drain=0.0)
    load("one")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(said, client, model="one", prompt="<hold>")
        eventually(lambda: starts.engines["one"][0].unfinished())
        assert client.delete("/models/one").json == {"modelName": "one", "endedRequests": 1}
        assert running.result(WITHIN) == (503, "model_unloaded")


@pytest.fixture
def fetched(models: ModelRegistry, tmp_path: Path) -> Callable[[], list[str]]:
    """The directories that stand in the place of fetched ones: one for each address."""

    def find(config: EndpointConfig, source: str) -> Path:
        path = tmp_path / "fetched" / source.rpartition("/")[2]
        path.mkdir(parents=True, exist_ok=True)
        return path

    models.find = find
    return lambda: sorted(path.name for path in (tmp_path / "fetched").iterdir())


def test_what_was_fetched_goes_with_the_last_model_that_has_it(
    client: Client, starts: Starts, fetched: Callable[[], list[str]]
) -> None:
    def load(name: str, url: str) -> int:
        return client.post("/models", json={"model_name": name, "url": url}).status_code

    assert [load("one", "s3://b/x"), load("two", "s3://b/x")] == [200, 200]
    assert client.delete("/models/one").status_code == 200
    assert fetched() == ["x"]
    assert client.delete("/models/two").status_code == 200
    assert fetched() == []
    starts.failing = "a test"
    assert (load("three", "s3://b/y") >= 400, fetched()) == (True, [])
    starts.failing = ""
    starts.needs["large"] = MemoryNeed(GIB * 1000_000, 0, "a test")
    assert (load("large", "s3://b/z"), fetched()) == (507, ["z"]), "whoever makes room tries again"
    assert [load("four", "/local/v"), client.delete("/models/four").status_code] == [200, 200]
    assert fetched() == ["v", "z"], "it was not fetched"


def test_a_failed_model_that_is_replaced_leaves_no_files(
    client: Client, starts: Starts, models: ModelRegistry, fetched: Callable[[], list[str]]
) -> None:
    for url in ("s3://b/x", "s3://b/y"):
        assert client.post("/models", json={"model_name": "one", "url": url}).status_code == 200
        assert fetched() == [url[-1]]
        starts.engines["one"][-1].is_dead = True
        models.watch()
    assert client.delete("/models/one").status_code == 200
    assert fetched() == []


def test_without_a_model_of_the_start(service: Service, client: Client, load: Any) -> None:
    service.engine = None
    assert client.get("/ping").status_code == 200
    assert client.get("/models").json == {"models": []}
    assert client.get("/v1/models").get_json()["data"] == []
    assert client.get("/metrics").status_code == 200
    assert said(client) == (404, "model_unnamed")
    assert said(client, model="one") == (404, "model_not_loaded")
    assert load("one") == (200, "")
    assert said(client) == (404, "model_unnamed")
    assert said(client, model="one") == said(client, "/models/one/invoke") == (200, "one")
    configure(service, max_queue=0)
    assert client.delete("/models/one").status_code == 200
    assert said(client, model="one") == (404, "model_not_loaded"), "no limit of 0 is in the way"


def test_an_adapter_takes_no_models_name(with_adapters: None, client: Client, load: Any) -> None:
    load("one")
    reply = client.post("/adapters", json={"name": "one", "src": "/nowhere"})
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (409, "adapter_exists")


def test_the_watch_looks_at_each_and_ends_all_with_the_first(
    service: Service, engine: ScriptedEngine, client: Client, load: Any, starts: Starts, monkeypatch: Any
) -> None:
    for name, value in {"INTERVAL": 0.005, "LINGER": 0.02}.items():
        monkeypatch.setattr(watching, name, value)
    ended = threading.Event()
    load("one")
    load("two")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(watching.watch_engine, service, ended.set, lambda: None)
        starts.engines["one"][0].is_dead = True
        eventually(lambda: listed(client) == ["one:failed", "two"])
        assert not ended.is_set()
        running = pool.submit(said, client, model="two", prompt="<hold>")
        eventually(lambda: starts.engines["two"][0].unfinished())
        engine.is_dead = True
        assert running.result(WITHIN) == (500, "model_failed")
        assert ended.wait(WITHIN)
    assert starts.engines["two"][0].stopped


def test_a_queue_is_told_of_beside_a_model_that_is_idle(
    service: Service, engine: ScriptedEngine, client: Client, load: Any
) -> None:
    load("one")
    service.admission.limit = 100
    with ThreadPoolExecutor(SLOTS + 1) as pool:
        asked = [pool.submit(said, client, prompt="<gate:go>|b") for _ in range(SLOTS + 1)]
        eventually(lambda: engine.unfinished() == SLOTS + 1)
        assert "endpoint_requests_queued 1.0" in client.get("/metrics").text
        engine.open("go")
        assert {one.result(WITHIN) for one in asked} == {(200, "scripted")}


def test_the_health_does_not_wait_behind_loads(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    pools, loaded = list[ThreadPoolExecutor](), threading.Event()

    class Recorded(ThreadPoolExecutor):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            pools.append(self)

    monkeypatch.setattr(application, "ThreadPoolExecutor", Recorded)
    monkeypatch.setattr(application, "THREADS", 1)
    client = http_client(service)
    pools[0].submit(loaded.wait, WITHIN)
    try:
        assert client.get("/health").status_code == 200
    finally:
        loaded.set()
