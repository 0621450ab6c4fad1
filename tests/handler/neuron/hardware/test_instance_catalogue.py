from __future__ import annotations

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.neuron.hardware.current_machine import PRODUCT_NAMES, read_text, this_machine
from handler.neuron.hardware.instance_catalogue import (
    GIB,
    core_memory,
    default_degree,
    find,
    find_for_plan,
    logical_cores,
    unusual_degree,
)
from tests.handler.neuron.published_models import LLAMA_8B, LLAMA_70B, SCOUT, published


@pytest.mark.parametrize("name", ["trn2.48xlarge", "ml.trn2.48xlarge", " ML.TRN2.48XLARGE\n"])
def test_an_instance_has_two_names(name: str) -> None:
    assert find(name).name == "trn2.48xlarge"


@pytest.mark.parametrize(
    ("given", "meant"), [("ml.inf2.48xlage", "ml.inf2.48xlarge"), ("trn1.32large", "ml.trn1.32xlarge")]
)
def test_a_typing_error_gets_a_suggestion(given: str, meant: str) -> None:
    with pytest.raises(SettingError, match=rf"ENDPOINT_INSTANCE: .*Did you mean {meant}\?"):
        find(given)


@pytest.mark.parametrize("name", ["ml.trn2.3xlarge", "trn2u.48xlarge", "ml.trn3.48xlarge", "trn3u.anything"])
def test_an_instance_that_sagemaker_does_not_host_is_rejected(name: str) -> None:
    with pytest.raises(SettingError, match=r"SageMaker does not host .*Use ml\.trn2\.48xlarge"):
        find(name)


@pytest.mark.parametrize("name", ["ml.trn2.3xlarge", "ml.trn3.48xlarge"])
def test_a_plan_for_it_has_ec2s_name(name: str) -> None:
    plain = name.removeprefix("ml.")
    assert find_for_plan(f" {plain.upper()}\n").name == plain
    with pytest.raises(SettingError, match=rf"A plan for EC2, EKS or HyperPod names it {plain}\."):
        find_for_plan(name)


@pytest.mark.parametrize(
    ("name", "words"), [("ml.g5.xlarge", "Use one of inf2.xlarge"), ("inf1.xlarge", "Inferentia 1")]
)
def test_an_unknown_instance_is_rejected_with_the_known_ones(name: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        find(name)


@pytest.mark.parametrize(
    ("name", "lnc", "cores", "gib"),
    [
        ("inf2.xlarge", None, 2, 16),
        ("inf2.24xlarge", None, 12, 16),
        ("inf2.48xlarge", None, 24, 16),
        ("trn1.2xlarge", None, 2, 16),
        ("trn1.32xlarge", None, 32, 16),
        ("trn2.48xlarge", None, 64, 24),
        ("trn2.48xlarge", 2, 64, 24),
        ("trn3.48xlarge", None, 64, 36),
        ("trn2.48xlarge", 1, 128, 12),
    ],
)
def test_cores_and_their_memory(name: str, lnc: int | None, cores: int, gib: int) -> None:
    instance = find(name, hosting=False)
    assert (logical_cores(instance, lnc), core_memory(instance, lnc)) == (cores, gib * GIB)


def test_an_lnc_that_the_instance_does_not_support_is_rejected() -> None:
    with pytest.raises(SettingError, match=r"logical_nc_config: inf2.xlarge does not support LNC 2\. Use 1"):
        logical_cores(find("inf2.xlarge"), 2)


@pytest.mark.parametrize(
    ("name", "degree", "unusual"),
    [
        ("inf2.48xlarge", 24, False),
        ("inf2.24xlarge", 12, True),
        ("trn1.32xlarge", 16, True),
        ("trn1.32xlarge", 8, False),
        ("trn2.48xlarge", 64, False),
        ("trn2.48xlarge", 48, True),
    ],
)
def test_unusual_degrees(name: str, degree: int, unusual: bool) -> None:
    assert unusual_degree(find(name), degree) is unusual


@pytest.mark.parametrize(
    ("instance", "model", "degree"),
    [
        ("trn2.48xlarge", LLAMA_70B, 64),
        ("trn2.48xlarge", LLAMA_8B, 32),  # 32 heads: 64 ranks would be half padding
        ("inf2.48xlarge", LLAMA_8B, 8),  # 24 does not divide 32 heads
        ("inf2.48xlarge", LLAMA_70B, 24),  # 8 divides 64 heads, but the weights would not fit 8 cores
        ("trn2.48xlarge", SCOUT, 64),  # 8 divides 40 heads, but ...
        ("trn1.32xlarge", "Qwen/Qwen2.5-32B-Instruct", 8),
        ("inf2.24xlarge", "Qwen/Qwen2.5-7B-Instruct", 4),
    ],
)
def test_the_default_degree_divides_the_heads_unless_the_weights_need_more_cores(
    instance: str, model: str, degree: int
) -> None:
    facts = published(model)
    assert default_degree(find(instance), facts.heads, facts.weight_bytes) == degree


@pytest.mark.parametrize(("instance", "degree"), [("trn2.48xlarge", 32), ("inf2.24xlarge", 8), ("inf2.48xlarge", 8)])
def test_without_a_model_the_default_is_a_degree_that_divides_the_heads_of_most(instance: str, degree: int) -> None:
    assert default_degree(find(instance)) == degree


def test_the_configured_instance_wins_over_the_firmware() -> None:
    found = this_machine(EndpointConfig(instance="ml.inf2.48xlarge"), lambda path: "trn1.32xlarge\n")
    assert found is not None
    assert found.name == "inf2.48xlarge"


@pytest.mark.parametrize("place", PRODUCT_NAMES)
def test_the_firmware_names_the_instance(place: str) -> None:
    found = this_machine(EndpointConfig(), lambda path: "trn1.32xlarge\n" if path == place else None)
    assert found is not None
    assert found.name == "trn1.32xlarge"


@pytest.mark.parametrize("name", ["trn2u.48xlarge", "trn3.48xlarge"])
def test_a_machine_that_sagemaker_does_not_host_is_known_when_we_run_on_it(name: str) -> None:
    found = this_machine(EndpointConfig(), lambda path: f"{name}\n")
    assert found is not None
    assert not found.hosting


def test_an_invalid_configured_instance_is_rejected() -> None:
    with pytest.raises(SettingError, match=r"Did you mean ml\.trn1\.32xlarge"):
        this_machine(EndpointConfig(instance="trn1.32xlrge"), lambda path: None)


def test_a_file_that_is_not_there_reads_as_nothing(tmp_path: object) -> None:
    assert read_text(f"{tmp_path}/none") is None
