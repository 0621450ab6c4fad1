"""Examines the settings of a compile on a CPU, before an instance is rented or a container is started."""

from __future__ import annotations

from collections.abc import Mapping

from handler.config.finding import Severity
from handler.config.loading.config_loader import load
from handler.config.problems import SettingErrors
from handler.errors import SettingError
from handler.neuron.planning.examination import examine_config
from handler.neuron.planning.file_examination import with_files


def require_startable(environ: Mapping[str, str]) -> None:
    """Checks that a container with these variables would compile.

    :raises SettingErrors: it would not. The error has every finding.
    """
    found = with_files(examine_config(load(environ))).findings
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    if errors:
        raise SettingErrors([SettingError(error.setting, error.why, error.fix) for error in errors])
