"""Starts and ends the process that serves S3 (and moto's CloudWatch and Application Auto Scaling)."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

STARTED_WITHIN = 60.0


class S3Server:
    """The S3 server's process. It ends with this one."""

    def __init__(self, port: int, log_file: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        with log_file.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "local_sagemaker.s3.s3_process", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # A Ctrl-C at a terminal must not end it before the containers have ended.
            )

    def wait_started(self) -> None:
        """Waits until the server answers.

        :raises RuntimeError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + STARTED_WITHIN
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/", timeout=2):
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the S3 server did not start; see s3.log in the state directory")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
