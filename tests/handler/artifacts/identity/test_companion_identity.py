"""Adapters and drafts are on this machine before the engine starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import mapping
from handler.model.companions import fetch_companions
from handler.neuron.planning.planner import make_plan

PEFT = json.dumps({"r": 8, "target_modules": ["q_proj"]}).encode()


@pytest.fixture
def addresses(s3: Any, bucket: str) -> dict[str, str]:
    s3.put_object(Bucket=bucket, Key="sql/adapter_config.json", Body=PEFT)
    s3.put_object(Bucket=bucket, Key="sql/adapter_model.safetensors", Body=b"weights")
    s3.put_object(Bucket=bucket, Key="draft/config.json", Body=b"{}")
    s3.put_object(Bucket=bucket, Key="empty/readme", Body=b"")
    return {name: f"s3://{bucket}/{name}" for name in ("sql", "draft", "empty")}


def config(scratch: Path, **settings: Any) -> EndpointConfig:
    return EndpointConfig(scratch=scratch, tensor_parallel_size=2, max_model_len=1024, max_num_seqs=4, **settings)


def planned(asked: EndpointConfig, line: str) -> Any:
    outcome = make_plan(asked, None, None, line=line)
    assert outcome.plan is not None, outcome.errors
    return outcome.plan


def test_an_adapter_in_s3_is_brought_and_named_to_the_plugin(addresses: dict[str, str], tmp_path: Path) -> None:
    asked = config(tmp_path, lora_modules={"sql": addresses["sql"]}, lora_target_modules=("q_proj",))
    plan = fetch_companions(asked).rewritten(planned(asked, "nxdi-0.16"))
    override = plan.section("override_neuron_config")
    document = json.loads(Path(str(override["lora_ckpt_json"])).read_text())
    local = Path(document["lora-ckpt-dir"]) / document["lora-ckpt-paths"]["sql"]
    assert (local / "adapter_model.safetensors").read_bytes() == b"weights"


def test_a_fork_reads_the_directory_in_its_own_argument(addresses: dict[str, str], tmp_path: Path) -> None:
    asked = config(tmp_path, lora_modules={"sql": addresses["sql"]})
    plan = fetch_companions(asked).rewritten(planned(asked, "fork-0.7.2"))
    modules = plan.engine_args["lora_modules"]
    assert isinstance(modules, list)
    (module,) = modules
    assert (Path(str(mapping(module)["path"])) / "adapter_config.json").read_bytes() == PEFT


def test_a_draft_in_s3_is_brought_and_led_to(addresses: dict[str, str], tmp_path: Path) -> None:
    asked = config(tmp_path, speculative_model=addresses["draft"], num_speculative_tokens=4)
    seen: list[tuple[int, int]] = []
    companions = fetch_companions(asked, lambda done, total: seen.append((done, total)))
    plan = companions.rewritten(planned(asked, "nxdi-0.16"))
    assert plan.section("speculative_config")["model"] == companions.draft
    assert (Path(str(companions.draft)) / "config.json").is_file()
    assert seen[-1] == (2, 2)
    assert "s3://" not in json.dumps(plan.document())


def test_what_is_no_adapter_is_refused_by_name(addresses: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"'sql' at .* has no adapter_config\.json"):
        fetch_companions(EndpointConfig(scratch=tmp_path, lora_modules={"sql": addresses["empty"]}))
    with pytest.raises(SettingError, match="lora_modules"):
        fetch_companions(EndpointConfig(scratch=tmp_path, lora_modules={"sql": "/no/where"}))


def test_an_address_with_nothing_is_refused_by_name(s3: Any, bucket: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="speculative_model"):
        fetch_companions(EndpointConfig(scratch=tmp_path, speculative_model=f"s3://{bucket}/nothing"))
