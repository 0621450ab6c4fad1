"""Whether vLLM's import has to wait for packages of the model's own code."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.config.loading.config_loader import load
from handler.startup.custom_code_loading import names_requirements


@pytest.mark.parametrize("file", ["code/requirements.txt", "requirements.txt"])
def test_a_models_requirements_are_seen_before_it_is_fetched(tmp_path: Path, file: str) -> None:
    settings = {"ENDPOINT_MODEL": str(tmp_path)}
    assert not names_requirements(load(settings))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert names_requirements(load(settings))
    assert not names_requirements(load({**settings, "ENDPOINT_CUSTOM_CODE": "false"}))


def test_a_hub_id_has_none() -> None:
    assert not names_requirements(load({"ENDPOINT_MODEL": "some/model"}))


def test_where_it_cannot_be_read_the_fetch_goes_first() -> None:
    assert names_requirements(load({"ENDPOINT_MODEL": "s3://"}))
