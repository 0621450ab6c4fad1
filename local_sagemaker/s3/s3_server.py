"""Starts, restarts and ends the process that serves S3 (and moto's CloudWatch and Application Auto Scaling)."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

log = logging.getLogger(__name__)

STARTED_WITHIN = 60.0
AGAIN_AFTER = 0.5


class S3Server:
    """The S3 server's process.

    :param kept: the directory of its objects. A change is stored there before it is answered.
    """

    def __init__(self, port: int, kept: Path, log_file: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "local_sagemaker.s3.s3_process", str(port), str(kept)]
        self._log_file = log_file
        self._ending = threading.Event()
        self._changed = threading.Lock()
        self._process = self._start()

    def wait_started(self) -> None:
        """Waits until the server answers. From then on it is restarted if it ends.

        :raises RuntimeError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + STARTED_WITHIN
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/", timeout=2):
                    break
            except OSError:
                time.sleep(0.05)
        else:
            raise RuntimeError("the S3 server did not start; see s3.log in the state directory")
        threading.Thread(target=self._keep_up, daemon=True, name="S3").start()

    def stop(self) -> None:
        with self._changed:
            self._ending.set()
            process = self._process
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _keep_up(self) -> None:
        """Restarts the server. This thread is the parent of the process, which ends with it."""
        while True:
            status = self._process.wait()
            if self._ending.wait(AGAIN_AFTER):
                return
            log.warning("the S3 server ended with status %s; restarting it", status)
            with self._changed:
                if self._ending.is_set():
                    return
                self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log_file.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # A Ctrl-C at a terminal must not end it before the containers have ended.
            )
