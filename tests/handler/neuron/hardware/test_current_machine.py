from __future__ import annotations

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.neuron.hardware.current_machine import PRODUCT_NAMES, read_text, this_machine


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
