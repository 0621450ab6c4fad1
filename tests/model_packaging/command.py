"""The command `neuron-endpoint`, run in this process as a user types it."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from model_packaging.cli import main


def run(*words: object, input: str | None = None, **environ: str) -> Result:
    """:param input: what is typed when it asks."""
    variables = {"COLUMNS": "200", **environ}
    return CliRunner().invoke(main, [*map(str, words)], input, variables, catch_exceptions=False)


def told(*words: object) -> Any:
    """What it prints as JSON."""
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
