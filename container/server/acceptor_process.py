"""Binds the port, and runs the acceptor's process: gunicorn's master starts it, again if it ends, and ends it.

The port is bound before the server is imported: SageMaker counts from the container's start, and the imports of Flask
and of the routes are most of the time until gunicorn could bind it. Until then the kernel queues the connections.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from container.server.acceptor import Acceptor
from container.server.connection_channel import ConnectionChannel
from container.server.ping_state import PingState
from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.processes import alive

logger = logging.getLogger(__name__)
# Queued connections that are not accepted yet. The kernel's own limit (net.core.somaxconn) may be lower.
BACKLOG = 2048
# The name of the process, as `ps -o comm` shows it.
NAME = "acceptor"
# It needs little of the processor, and answers the health checks of a machine that has none left.
NICE = -10
PR_SET_PDEATHSIG = 1  # linux/prctl.h


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


class AcceptorProcess:
    """One acceptor. All methods are called in the master.

    :param listener: listens on the endpoint's port.
    :param stall: seconds without progress of a serving process after which /ping answers 500.
    :ivar channel: brings the connections to the serving process, which inherits it.
    :ivar state: what /ping answers. The serving process writes it.
    """

    def __init__(self, listener: socket.socket, stall: float) -> None:
        self.listener = listener
        listener.setblocking(False)  # for every process: they share the flag, and the acceptor must not block
        self.state = PingState(stall)
        self.channel = ConnectionChannel()
        self._pid = 0

    def start(self) -> None:
        """Starts the process, unless it runs."""
        if self._pid:
            if alive(self._pid):
                return
            logger.error("The acceptor's process has ended. Another one takes its place.")
            self.channel.close()
            self.channel = ConnectionChannel()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._run(parent)
            except BaseException:
                logger.exception("the acceptor failed")
            finally:
                os._exit(1)
        self.channel.acceptor_end.close()  # only then does the serving process see that the acceptor has ended

    def _run(self, parent: int) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # it serves until the master ends
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        Path("/proc/self/comm").write_text(NAME)
        gc.freeze()  # a collection would write to every page that it shares with the master
        with suppress(OSError):  # it needs CAP_SYS_NICE
            os.nice(NICE)
        Acceptor(self.listener, self.channel, self.state).run()

    def stop(self) -> None:
        """Ends the process."""
        with suppress(ProcessLookupError, ChildProcessError):  # gunicorn may have waited for it
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
