"""schemathesis over the endpoint's own OpenAPI document: statuses, content types and bodies are as it says; no 5xx.

`make fuzz EXAMPLES=200` makes more requests an operation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "4"))
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
)
# Every field's boundary values take minutes.
PHASES = "coverage,fuzzing" if EXAMPLES >= 20 else "fuzzing"


@pytest.mark.timeout(max(300, EXAMPLES * 30))
def test_the_endpoint_does_what_its_document_says(endpoint: ServeProcess, tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("schemathesis")
    arguments = [
        *("--phases", PHASES, "--max-examples", str(EXAMPLES), "--seed", "6", "--workers", "1"),
        *("--no-shrink", "--suppress-health-check", "all", "--checks", ",".join(CHECKS), "--continue-on-failure"),
        # Adapters are off here, which is 501; the page is for people.
        *("--exclude-path-regex", "^/adapters", "--request-timeout", "60", "--no-color"),
    ]
    ran = subprocess.run(
        [command, "run", f"{endpoint.url}/openapi.json", *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    print(ran.stdout[-600:])
    assert endpoint.ping() == (200, "")
