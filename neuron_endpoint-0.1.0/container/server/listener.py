"""Binds the port before the server is imported.

SageMaker counts from the container's start. The imports of Flask and of the routes are most of the time until gunicorn
could bind the port. Until gunicorn accepts, the kernel queues the connections.
"""

from __future__ import annotations

import os
import socket

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError

# Queued connections that are not accepted yet. The kernel's own limit (net.core.somaxconn) may be lower.
BACKLOG = 2048


def listen(config: EndpointConfig) -> socket.socket:
    """Opens a socket that listens on the endpoint's port, on all IPv4 addresses of the machine.

    :raises SettingError: the port is in use by another process, or needs privileges that this one lacks.
    """
    try:
        return socket.create_server(("0.0.0.0", config.port), backlog=BACKLOG)
    except OSError as error:
        setting = config.source("port").name or "SAGEMAKER_BIND_TO_PORT"
        problem = f"port {config.port} cannot be bound: {os.strerror(error.errno or 0)}"
        raise SettingError(setting, problem, "Set it to a free port, or end the process that uses this one.") from None
