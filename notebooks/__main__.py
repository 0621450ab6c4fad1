"""`python -m notebooks [NAME...]`: runs notebooks against a local SageMaker, and saves their outputs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat

from notebooks import local
from notebooks.execution import executed, notebooks


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as state, local.up(Path(state)) as environ:
        for path in notebooks():
            if not names or any(name in path.name for name in names):
                nbformat.write(executed(path, environ), path)
                print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
