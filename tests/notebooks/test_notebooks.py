"""The notebooks, run top to bottom as their reader runs them: real engines behind a SageMaker on this machine.

What is checked in was seen: a new run shows the same, but for times and pictures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
import pytest

import sample_model
from handler.config.finding import Severity
from model_packaging.examination_report import examine
from notebooks import local, place
from notebooks.execution import executed, notebooks
from tests.local_sagemaker.local_service import LocalService

# What differs from run to run: times, rates, how often a wait looked; and from machine to machine: versions, digests.
WAITS = re.compile(r"^\[ *\d+ s\] endpoint .*(Creating|Updating|Deleting)\b.*\n", re.MULTILINE)
VERSION = re.compile(r"^vLLM \S+ is installed.*\n", re.MULTILINE)
# A CPU without arithmetic for bfloat16 computes in float32.
DTYPE = re.compile(r", 'dtype': 'float32'")
VARIABLE = re.compile(
    r"\[ *\d+ s\]|\b\d+(\.\d+)? (ms|s|minutes)\b|\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?|\b[\d.]+ tokens/s"
    r"|\b[0-9a-f]{16}\b|-[0-9a-f]{12}\b|\b[\d.]+ [kM]B(?= {2})|\b\d+ files, [\d.]+ [kM]B(?=, in )"
)
TABLE = re.compile(r"[ \t]+")
NAMES = [path.stem for path in notebooks()]


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One SageMaker for all of them."""
    with local.up(tmp_path_factory.mktemp("notebooks")) as environ:
        yield environ


@pytest.mark.engine
@pytest.mark.timeout(1800)  # a compile, on a machine that others use
@pytest.mark.parametrize("path", notebooks(), ids=NAMES)
def test_a_new_run_shows_the_same(path: Path, environ: dict[str, str]) -> None:
    kept = nbformat.read(path, as_version=4)
    again = executed(path, environ)
    for cell, new in zip(kept.cells, again.cells, strict=True):
        assert shown(new) == shown(cell), cell.source


def test_the_first_cell_makes_its_bucket_in_any_region(tmp_path: Path) -> None:
    service = LocalService(tmp_path, "--region", "eu-west-1")
    try:
        with patch.dict(os.environ, {**service.exports, "LOCAL_SAGEMAKER_STATE": str(tmp_path)}):
            place.use(None, "notebooks", "ml.inf2.xlarge")
        assert [each["Name"] for each in service.client("s3").list_buckets()["Buckets"]] == ["notebooks"]
    finally:
        service.down()


@pytest.mark.parametrize("path", notebooks(), ids=NAMES)
def test_two_variables_lead_to_aws(path: Path) -> None:
    """The first cells say so, and no other cell names this machine."""
    words, place, *rest = nbformat.read(path, as_version=4).cells
    assert "two variables" in words.source
    assert re.findall(r"^([A-Z]+) = .*# AWS: ", place.source, re.MULTILINE) == ["IMAGE", "BUCKET"]
    assert not [cell.source for cell in rest if re.search(r"--local|127\.0\.0\.1|localhost", cell.source)]


@pytest.mark.parametrize("path", notebooks(), ids=NAMES)
def test_what_is_deployed_here_starts_on_the_notebooks_instance(path: Path) -> None:
    """On AWS the plan is of another line, which needs settings that the CPU line does without."""
    _, place, *rest = nbformat.read(path, as_version=4).cells
    (instance,) = re.findall(r'instance="([^"]+)"', place.source)
    lines = [line for cell in rest for line in cell.source.replace("\\\n", "").splitlines()]
    for line in (line for line in lines if "neuron-endpoint deploy" in line):
        settings = dict(re.findall(r"--set (\w+)=(\S+)", line.replace("$BUCKET", "models")))
        findings = examine(settings, str(sample_model.path()), instance=instance, line=None).findings
        assert [finding for finding in findings if finding.severity is Severity.ERROR] == [], line


def shown(cell: Any) -> list[str]:
    """A cell's outputs as text, without what differs."""
    return [_text(output) for output in cell.get("outputs", ())]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        text = VARIABLE.sub("...", DTYPE.sub("", VERSION.sub("", WAITS.sub("", output.text))))
        return f"{output.name}: {TABLE.sub(' ', text)}"
    assert output.output_type in {"execute_result", "display_data"}, output
    return ", ".join(sorted(output.data))
