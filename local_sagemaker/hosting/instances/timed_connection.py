"""An HTTP connection to a container, with one time limit for everything that the container sends.

A timeout of `http.client` is one of a single read. A container that sends a byte now and then would never meet it.
"""

from __future__ import annotations

import math
import socket
import time
from http.client import HTTPConnection
from typing import Any

from local_sagemaker.hosting.instances.host_settings import ContainerAddress


class TimedSocket(socket.socket):
    """A socket that receives nothing after ``deadline``."""

    deadline = math.inf

    def recv_into(self, *arguments: Any) -> int:
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self.settimeout(seconds)
        return super().recv_into(*arguments)


def connect(address: ContainerAddress, connect_seconds: float, seconds: float) -> HTTPConnection:
    """Returns an open connection.

    :param seconds: the time limit of everything that follows.
    :raises OSError: no connection was made.
    """
    connection = HTTPConnection(address.host, address.port, timeout=connect_seconds)
    deadline = time.monotonic() + seconds
    connection.connect()
    connection.sock = timed = TimedSocket(fileno=connection.sock.detach())
    timed.settimeout(seconds)
    timed.deadline = deadline
    return connection
