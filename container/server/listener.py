"""The port, bound before the server that will answer on it is imported.

Until then the kernel keeps who connects; SageMaker counts from a container's start, and the imports of Flask and of the
routes are most of the time until gunicorn could bind it.
"""

from __future__ import annotations

import os
import socket

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError

# Connections that nobody has accepted yet; the kernel's own limit (net.core.somaxconn) may be lower.
BACKLOG = 2048


def listen(config: EndpointConfig) -> socket.socket:
    """A socket that listens on the endpoint's port, on all of the machine's IPv4 addresses.

    :raises SettingError: it cannot be bound: another process has it, or it needs rights that this one lacks.
    """
    try:
        return socket.create_server(("0.0.0.0", config.port), backlog=BACKLOG)
    except OSError as error:
        setting = config.source("port").name or "SAGEMAKER_BIND_TO_PORT"
        problem = f"port {config.port} cannot be bound: {os.strerror(error.errno or 0)}"
        raise SettingError(setting, problem, "Set it to a free port, or end what listens there.") from None
