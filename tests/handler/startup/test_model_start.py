"""What a further model needs and may not have, before anything is started for it; and vLLM's figures of several."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest

import sample_model
from container.routes.picker_metrics import picker_metrics
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.engine import core_end, launch
from handler.engine.engine_client import engine_metrics
from handler.engine.event_loop import LoopThread
from handler.errors import SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.startup.multi_model import model_start
from handler.startup.multi_model.memory_budget import CORE, GIB, MemoryNeed, need_of, room
from handler.startup.multi_model.model_errors import InvalidModel, ModelsFull, ModelsUnsupported
from handler.startup.multi_model.model_start import prepare, whole_model
from handler.startup.start import starts_without_model
from tests.handler.loops import end_loop

MULTI = {"SAGEMAKER_MULTI_MODEL": "true"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_model.path(), tmp_path / "model"))


def test_a_whole_model_is_told_from_an_adapter(model: Path) -> None:
    config = EndpointConfig()
    assert whole_model(config, str(model)) == model
    assert whole_model(config, str(sample_model.adapter_path())) is None
    assert whole_model(config, "/nowhere") is None


@pytest.mark.parametrize(("arithmetic", "growth"), [({"avx512_bf16"}, 1), (set(), 2)])
def test_the_plan_is_the_models_own_under_the_endpoints_settings(
    model: Path, monkeypatch: pytest.MonkeyPatch, arithmetic: set[str], growth: int
) -> None:
    monkeypatch.setattr("handler.neuron.hardware.current_machine.cpu_flags", lambda: frozenset({"avx2", *arithmetic}))
    monkeypatch.setenv("SM_VLLM_MAX_NUM_SEQS", "3")
    monkeypatch.setenv("ENDPOINT_ENABLE_LORA", "true")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
    (model / "serving.properties").write_text("option.max_model_len=512\n")
    found = prepare(EndpointConfig(neuron_env={"VLLM_CPU_KVCACHE_SPACE": "2"}), "one", model)
    arguments = found.plan.engine_args
    assert (arguments["model"], arguments["served_model_name"]) == (str(model), ["one"])
    assert (arguments["max_num_seqs"], arguments["max_model_len"]) == (3, 512)
    assert "enable_lora" not in arguments
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    assert found.need.bytes == growth * weights + 2 * GIB + CORE, "float32 takes twice the files"
    assert "VLLM_CPU_KVCACHE_SPACE=2" in str(found.need)


def test_a_neuron_line_refuses_with_the_fix(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDPOINT_LINE", "nxdi-0.16")
    monkeypatch.setenv("ENDPOINT_INSTANCE", "ml.trn1.32xlarge")
    monkeypatch.setenv("SM_VLLM_TENSOR_PARALLEL_SIZE", "2")
    with pytest.raises(ModelsUnsupported, match=r"NeuronCores.*inference component.*ENDPOINT_ENABLE_LORA"):
        prepare(EndpointConfig(), "one", model)


def test_code_of_its_own_is_not_left_out_in_silence(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model / "code").mkdir()
    (model / "code/inference.py").write_text("def predict_fn(data, model):\n    return data\n")
    with pytest.raises(InvalidModel, match="ENDPOINT_CUSTOM_CODE=false"):
        prepare(EndpointConfig(), "one", model)
    assert prepare(EndpointConfig(custom_code=False), "one", model).name == "one"


def test_what_cannot_be_read_is_said_before_anything_is_started(model: Path) -> None:
    (model / "config.json").write_text('{"hidden_size": ')
    with pytest.raises(InvalidModel, match=r"config\.json"):
        prepare(EndpointConfig(), "one", model)


def test_without_a_setting_the_cache_is_half_of_the_memory(model: Path) -> None:
    found = need_of(model, EnginePlan("cpu", {}))
    assert found.cache > GIB
    assert "is not set" in found.cache_from
    assert need_of(model, EnginePlan("cpu", {}, {"VLLM_CPU_KVCACHE_SPACE": "4"})).cache == 4 * GIB


def test_each_rank_has_a_cache_and_a_process(model: Path) -> None:
    space, ranks = {"VLLM_CPU_KVCACHE_SPACE": "8"}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    alone, four = (need_of(model, EnginePlan("cpu", arguments, space)) for arguments in ({}, ranks))
    assert four.bytes == alone.weights + 4 * (8 * GIB + CORE)
    assert "VLLM_CPU_KVCACHE_SPACE=8 for each of 4 ranks), its 4 processes 4.0 GiB" in str(four)
    assert need_of(model, EnginePlan("cpu", ranks)).cache == 4 * need_of(model, EnginePlan("cpu", {})).cache


@pytest.mark.parametrize("name", ["model.gguf", "pytorch_model.bin", "consolidated.safetensors"])
def test_a_second_format_beside_the_weights_needs_no_memory(model: Path, name: str) -> None:
    before = need_of(model, EnginePlan("cpu", {})).weights
    assert before > 0
    (model / name).write_bytes(b"\0" * 1000)
    assert need_of(model, EnginePlan("cpu", {})).weights == before


def test_an_engine_that_has_taken_its_part_owes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = SimpleNamespace(pids=(1,))
    monkeypatch.setattr("handler.startup.multi_model.memory_budget.host_memory.available", lambda: 10 * GIB)
    monkeypatch.setattr("handler.startup.multi_model.memory_budget.host_memory.resident", lambda pids: 2 * GIB)
    assert room([(engine, MemoryNeed(GIB, 2 * GIB, ""))]) == 8 * GIB
    assert room([(engine, MemoryNeed(0, GIB // 2, ""))]) == 10 * GIB
    assert room([(engine, MemoryNeed(20 * GIB, 0, ""))]) == 0


@pytest.mark.parametrize("made", [True, False])
def test_a_multi_model_endpoint_may_start_without_a_model(tmp_path: Path, made: bool) -> None:
    base = {"SAGEMAKER_BASE_DIR": str(tmp_path)}
    if made:
        (tmp_path / "model").mkdir()
    assert starts_without_model(load({**MULTI, **base}))
    assert not starts_without_model(load(base))
    assert not starts_without_model(load({**MULTI, **base, "ENDPOINT_MODEL": str(tmp_path)})), (
        "it was named: it must be there"
    )
    with pytest.raises(SettingError, match="ENDPOINT_ENABLE_LORA"):
        starts_without_model(load({**MULTI, **base, "ENDPOINT_LINE": "nxdi-0.16"}))
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model/config.json").write_text("{}")
    assert not starts_without_model(load({**MULTI, **base}))


def counters(model: str, registry: CollectorRegistry = REGISTRY) -> Counter:
    counter = Counter("vllm:test_tokens", "Tokens.", ["model_name"], registry=registry)
    counter.labels(model).inc()
    return counter


def forget() -> None:
    """As vLLM does before it makes those of another engine."""
    for collector in list(REGISTRY._collector_to_names):
        if "vllm" in getattr(collector, "_name", ""):
            REGISTRY.unregister(collector)


def test_a_second_engines_figures_take_nothing_from_the_first() -> None:
    forget()
    try:
        first = counters("first")

        def second() -> Counter:
            forget()
            return counters("second")

        _, own = engine_metrics.with_own_registry(second)
        first.labels("first").inc()
        engine = SimpleNamespace(metrics_registry=own)
        models = SimpleNamespace(engines=lambda: [engine])
        loop = SimpleNamespace(run=lambda records, _: asyncio.run(records))
        service: Any = SimpleNamespace(models=models, engines=lambda: [], loop=loop)
        scraped: Any = SimpleNamespace(collect=lambda: picker_metrics(service))
        text = generate_latest(scraped).decode()
        assert 'vllm:test_tokens_total{model_name="first"} 2.0' in text
        assert 'vllm:test_tokens_total{model_name="second"} 1.0' in text
        assert text.count("# TYPE vllm:test_tokens_total counter") == 1
        assert '"second"' not in generate_latest(REGISTRY).decode(), "it goes with its engine"
    finally:
        forget()


def test_what_belongs_to_the_model_of_the_start_is_left_out(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENDPOINT_SPECULATIVE_MODEL", str(model))
    monkeypatch.setenv("ENDPOINT_NUM_SPECULATIVE_TOKENS", "3")
    monkeypatch.setenv("ENDPOINT_ARTIFACT_STORE", "s3://bucket/store")
    assert "speculative_config" not in prepare(EndpointConfig(), "one", model).plan.engine_args


def test_a_cache_of_no_size_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1.5")
    with pytest.raises(InvalidModel, match="VLLM_CPU_KVCACHE_SPACE"):
        prepare(EndpointConfig(neuron_env={"VLLM_CPU_KVCACHE_SPACE": "1.5"}), "one", model)


def test_the_cache_of_an_earlier_engines_plan_is_not_that_of_a_later_one(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")  # the plan's: the endpoint was started without it
    assert prepare(EndpointConfig(), "one", model).plan.env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_what_a_models_own_files_set_is_not_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    names = ("TORCHDYNAMO_DISABLE", "VLLM_ALLOW_LONG_MAX_MODEL_LEN")

    def launch(loop: Any, prepared: Any) -> Any:
        seen.append([os.environ.get(name) for name in names])

    monkeypatch.setattr(model_start, "_launch", launch)
    monkeypatch.setenv(names[0], "0")
    monkeypatch.delenv(names[1], raising=False)
    for env in (dict.fromkeys(names, "1"), {}):
        prepared: Any = SimpleNamespace(name="one", plan=EnginePlan("cpu", {}, env), config=None)
        model_start.start(LoopThread.start("engine"), prepared)
    assert seen == [["1", "1"], ["0", None]]


def test_a_core_that_dies_just_after_it_is_up_ends_the_load_at_once(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM would wait ten minutes for it, or for ever, and so would every other load."""

    async def start(arguments: object, settings: object) -> None:
        core = multiprocessing.get_context("spawn").Process(target=signal.pause)
        core.start()
        while core not in seen:
            await asyncio.sleep(0)
        core.kill()
        await asyncio.Event().wait()

    def looked() -> list[BaseProcess]:
        seen.update(children := multiprocessing.active_children())
        return children

    seen: set[BaseProcess] = set()
    monkeypatch.setattr(core_end, "active_children", looked)
    monkeypatch.setattr(core_end, "GRACE", 0.1)
    vllm = SimpleNamespace(parse=lambda *_: SimpleNamespace(served_model_name=["one"]), start=start)
    monkeypatch.setattr(launch, "generation", lambda: vllm)
    monkeypatch.setattr(model_start, "launch", partial(launch.launch, imports=lambda: None))
    monkeypatch.setattr(model_start, "use_environment", lambda plan: None)
    loop = LoopThread.start("test-loop")
    try:
        with pytest.raises(ModelsFull, match="SIGKILL"):
            model_start.start(loop, prepare(EndpointConfig(), "one", model))
    finally:
        end_loop(loop)
