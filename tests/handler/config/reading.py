"""Reads settings in tests: only those that a test gives."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.config.problems import SettingErrors
from handler.errors import SettingError


def read(environ: Mapping[str, str], files: Mapping[str, str] | None = None) -> EndpointConfig:
    """The configuration, with these files and no other."""
    return load(environ, fetch=lambda location: body.encode() if (body := (files or {}).get(location)) else None)


def refused(environ: Mapping[str, str], files: Mapping[str, str] | None = None) -> tuple[SettingError, ...]:
    """The errors, one by one."""
    with pytest.raises(SettingErrors) as caught:
        read(environ, files)
    return caught.value.errors


def one_refusal(environ: Mapping[str, str], files: Mapping[str, str] | None = None) -> SettingError:
    (error,) = refused(environ, files)
    return error
