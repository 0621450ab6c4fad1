"""How many files a streamed chat passes, counted on a running engine, is what the documents say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 14


@pytest.mark.engine
@pytest.mark.vllm_016("the count is that of the default engine")
def test_the_documents_have_the_count_of_files() -> None:
    command = [sys.executable, "-m", "tests.path_length"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    count = int(done.stdout.rstrip().rpartition("\n")[2].removesuffix(" files"))
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (written,) = map(int, re.findall(r"At the last look (\d+)", page))
    # One less where no token is written by the collector of outputs: that depends on which steps arrive together.
    assert written - 1 <= count <= written <= MOST, done.stdout
