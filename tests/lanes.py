"""`make test`: the tests of the endpoint beside all others, since each half keeps one core busy and waits for much.

Each lane is a run of pytest of its own. The second one's output comes when the first has ended.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

ENDPOINT = ("tests/endpoint",)
OTHERS = ("--ignore=tests/endpoint",)


def main() -> int:
    """Exit status: 0 when both lanes passed, else pytest's of the one that did not."""
    with tempfile.TemporaryFile() as output:
        beside = subprocess.Popen(pytest(OTHERS), stdout=output, stderr=subprocess.STDOUT)
        try:
            status = subprocess.run(pytest(ENDPOINT)).returncode
            print("\nThe other tests, which ran beside these:", flush=True)
            status = beside.wait() or status
        except KeyboardInterrupt:  # the terminal has told both
            status = 130
            beside.wait()
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
        return status


def pytest(chosen: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "pytest", *chosen, *sys.argv[1:]]


if __name__ == "__main__":
    sys.exit(main())
