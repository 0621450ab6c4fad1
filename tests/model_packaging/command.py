"""The command `neuron-endpoint`, run in this process as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from model_packaging.cli import main


def run(*words: str | Path, **environ: str) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], env={"COLUMNS": "200", **environ})


def told(*words: str | Path) -> Any:
    """What it prints as JSON."""
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
