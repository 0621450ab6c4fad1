"""Configuration, packaging and the first second of `serve` must work, and start fast, where no engine is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the imports of vLLM bring anyway, beside the fetch of the model, and what few requests need.
HEAVY = (
    "vllm",
    "torch",
    "transformers",
    "boto3",
    "botocore",
    "numpy",
    "scipy",
    "pydantic_core",
    "unittest.mock",
    "wsproto",
)


@pytest.mark.parametrize(
    "modules",
    [
        ["handler.config.loading.config_loader", "handler.config.endpoint_config"],
        ["handler.schemas.dispatch", "handler.schemas.json_body", "handler.schemas.openai.model_names"],
        ["handler.model.model_source", "handler.storage.s3_download", "handler.storage.archive"],
        ["handler.artifacts.store.garbage_collection", "handler.artifacts.external.external_source"],
        ["handler.artifacts.identity.software_versions", "handler.artifacts.identity.miss_report"],
        ["handler.engine.engine", "handler.engine.generation.prompt_renderer", "handler.engine.heartbeat"],
        ["container.application"],
        ["container.serve", "container.server.gunicorn_server", "container.server.worker", "handler.startup.start"],
    ],
    ids=lambda modules: modules[0],
)
def test_importing_pulls_in_neither_an_engine_nor_boto3(modules: list[str]) -> None:
    script = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(json.loads(found.stdout)) & {*HEAVY, "handler.engine.v1.adapter"}


def test_what_vllms_own_processes_import_again_is_next_to_nothing() -> None:
    """They are spawned from `serve`, and import its top; vLLM 0.32.0 does not start where Flask is loaded."""
    script = "import json, sys; from container.serve import main; print(json.dumps(sorted(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(found.stdout)}
    assert not loaded & {*HEAVY, "flask", "werkzeug", "gunicorn", "handler"}
