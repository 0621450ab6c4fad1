"""Compiled artifacts that somebody else made and a setting names: brought here, looked at, and held against the plan.

The plugin loads NEURON_COMPILED_ARTIFACTS as it stands: it checks no digest, ignores what the configuration asks for,
and dies on a truncated file. So a difference, or a file that cannot be loaded, stops the start here, by name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from handler.artifacts.external.cross_check import cross_check
from handler.artifacts.external.external_artifacts import describe
from handler.artifacts.external.external_source import bring
from handler.config.finding import Finding, Severity
from handler.config.problems import SettingErrors
from handler.errors import SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import this_machine
from handler.startup.progress_display import of_bytes, shown
from handler.startup.serving_state import ServingState
from handler.storage.directory_objects import DirectoryObjects

logger = logging.getLogger(__name__)


def with_given_artifacts(state: ServingState, plan: EnginePlan) -> EnginePlan:
    """The plan, led to the artifacts that the configuration names.

    :raises SettingErrors: they cannot be loaded, or were compiled for something else: each field with both values.
    """
    config = state.config
    if not config.compiled_artifacts or plan.line == "cpu":
        return plan
    setting = config.source("compiled_artifacts").name or "compiled_artifacts"
    state.lifecycle.stage("fetch artifacts")
    target = config.scratch / "given-artifacts" / sha256(config.compiled_artifacts.encode()).hexdigest()[:16]
    with shown(state.lifecycle, "fetch artifacts") as progress:
        directory = bring(config.compiled_artifacts, target, setting, of_bytes(progress))
    found = describe(DirectoryObjects(directory))
    logger.info("artifacts at %s: nobody vouches for %s", found.where, "; ".join(found.not_vouched))
    refuse(found.findings, setting)
    instance = this_machine(config)
    lnc = plan.env.get("NEURON_LOGICAL_NC_CONFIG") or (str(instance.lnc[0]) if instance else None)
    refuse(cross_check(found.config, plan, lnc=int(lnc) if lnc else None), setting)
    return replace(plan, env={**plan.env, "NEURON_COMPILED_ARTIFACTS": str(directory)})


def refuse(findings: Sequence[Finding], setting: str) -> None:
    """Logs the warnings. :raises SettingErrors: there are errors."""
    for finding in findings:
        if finding.severity is not Severity.ERROR:
            logger.warning("[%s] %s: %s. %s", finding.code, finding.setting, finding.why, finding.fix)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise SettingErrors([SettingError(error.setting or setting, error.why, error.fix) for error in errors])
