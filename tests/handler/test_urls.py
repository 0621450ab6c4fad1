"""Texts that are no URL, in every place where one is read. Python's parser raises on them."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest
from flask import Request
from werkzeug.test import EnvironBuilder

from container.requests.origin_check import check_host, check_origin
from handler.config import tracing_settings
from handler.config.endpoint_config import EndpointConfig
from handler.errors import ForeignHost, ForeignOrigin, SettingError
from handler.urls import url_parts
from tests.model_packaging.command import run
from tests.small_model import write_small_model

NO_URLS = ("http://[", "s3://[a/b", "file:///[", "//a]", "[")
TEXTS = sorted(name for name, hint in get_type_hints(EndpointConfig).items() if hint == str | None)


@pytest.mark.parametrize("text", NO_URLS)
def test_it_has_parts_or_none(text: str) -> None:
    assert url_parts(text).hostname is None


def test_every_setting_of_a_text(tmp_path: Path) -> None:
    model = write_small_model(tmp_path / "model")
    assert "artifact_store" in TEXTS
    for name in TEXTS:
        settings = tmp_path / f"{name}.yaml"
        for text in NO_URLS[:2]:
            settings.write_text(f"{name}: '{text}'\n")
            result = run("check", model, "--env", ENDPOINT_CONFIG=str(settings))
            assert result.exit_code in (0, 1, 5), (name, text, result.output)


def test_the_address_of_traces() -> None:
    with pytest.raises(SettingError, match="no network"):
        tracing_settings.check({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://["}, isolated=True)


def test_the_headers_of_a_browser() -> None:
    def request(name: str, value: str) -> Request:
        return Request({**EnvironBuilder(method="POST").get_environ(), name: value})

    with pytest.raises(ForeignHost):
        check_host(request("HTTP_HOST", "["))
    with pytest.raises(ForeignOrigin):
        check_origin(request("HTTP_ORIGIN", "http://["))
