"""Runs a notebook top to bottom in a kernel of this Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
CELL_SECONDS = 1200


def notebooks() -> list[Path]:
    """Returns the notebooks in reading order."""
    return sorted(HERE.glob("*.ipynb"))


def executed(path: Path, environ: Mapping[str, str]) -> nbformat.NotebookNode:
    """Returns the notebook with new outputs. The file is not changed.

    :raises nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(HERE)}},
    )
    client.execute(env=dict(environ))
    # The other metadata describe the machine on which the notebook ran.
    notebook.metadata = nbformat.from_dict({"kernelspec": notebook.metadata["kernelspec"]})
    return notebook
