"""Passes accepted connections from the acceptor's process to the serving process (unix(7), SCM_RIGHTS)."""

from __future__ import annotations

import errno
import os
import socket

# The kernel doubles it and counts about 770 bytes for a message. So fewer than a hundred connections are under way.
# The kernel limits them to RLIMIT_NOFILE.
SEND_BUFFER = 32 * 1024


class ConnectionChannel:
    """A pair of sockets, from the acceptor to the serving process."""

    def __init__(self) -> None:
        self.acceptor_end, self._worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.acceptor_end.setblocking(False)
        self.acceptor_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._worker_end.setblocking(False)

    def send(self, connection: socket.socket) -> None:
        """Sends a connection. The sender still has to close its own descriptor.

        :raises BlockingIOError: the serving process has yet to accept earlier ones.
        """
        try:
            socket.send_fds(self.acceptor_end, [b"\0"], [connection.fileno()])
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            raise BlockingIOError from None

    def fileno(self) -> int:
        """The serving process's end."""
        return self._worker_end.fileno()

    def accept(self) -> socket.socket:
        """The next connection, as `accept` of a listening socket.

        :raises EOFError: the acceptor has ended.
        :raises BlockingIOError: there is none.
        :raises OSError: this process has no file descriptor for it.
        """
        data, descriptors, _, _ = socket.recv_fds(self._worker_end, 1, 1)
        if not data:
            raise EOFError("the acceptor's process has ended")
        if not descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        self.acceptor_end.close()
        self._worker_end.close()
