"""HTTP over TLS that reads many records with one system call.

Python's `ssl.SSLSocket` makes two calls for each record of 16 KB, one for its header and one for its content. For a
model of gigabytes that was half of the time that a connection spends in the kernel (benchmarks/README.md).
"""

from __future__ import annotations

import io
import socket
import ssl
from http.client import HTTPS_PORT, HTTPConnection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Bytes of one read from the kernel (measured: 64 KiB costs more, 1 MiB nothing less).
RECEIVED = 256 * 1024


class TlsConnection(HTTPConnection):
    """:param context: the certificate is checked by it, for the connection's host."""

    default_port = HTTPS_PORT

    def __init__(self, host: str, port: int | None, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context = context

    def connect(self) -> None:
        """:raises OSError: no connection (`ssl.SSLError`: the handshake failed)."""
        super().connect()
        plain: socket.socket = self.sock
        try:
            self.sock = _TlsSocket(plain, self._context, self.host)
        except BaseException:
            plain.close()
            self.sock = None
            raise


class _TlsSocket:
    """What `http.client` and a reader use of a socket. Only `shutdown` may be called from another thread."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._received = memoryview(bytearray(RECEIVED))
        self.settimeout, self.shutdown, self.close = plain.settimeout, plain.shutdown, plain.close
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send()
                self._receive()
            except ssl.SSLError:
                self._send()  # the alert that tells the server why
                raise
            else:
                self._send()
                return

    def sendall(self, data: bytes) -> None:
        self._tls.write(data)
        self._send()

    def makefile(self, mode: str) -> io.BufferedReader:
        """The reading side. As with a socket, the connection stays open until this is closed, too."""
        return io.BufferedReader(_Records(self, self._plain.makefile("rb", buffering=0)))

    def readinto(self, buffer: memoryview) -> int:
        """Decrypts what has arrived, and waits for more only if that is nothing. Returns 0 at the end."""
        count = 0
        while count < len(buffer):
            try:
                part = int(self._tls.read(len(buffer) - count, buffer[count:]))  # a number, because of the buffer
            except ssl.SSLWantReadError:
                if count:
                    break
                self._send()
                self._receive()
                continue
            except ssl.SSLZeroReturnError:
                break
            if not part:
                break
            count += part
        return count

    def _send(self) -> None:
        if self._outgoing.pending:
            self._plain.sendall(self._outgoing.read())

    def _receive(self) -> None:
        count = self._plain.recv_into(self._received)
        if count:
            self._incoming.write(self._received[:count])
        else:
            self._incoming.write_eof()


class _Records(io.RawIOBase):
    """:param held: the plain socket's file, which keeps the socket open."""

    def __init__(self, tls: _TlsSocket, held: io.RawIOBase) -> None:
        self._tls, self._held = tls, held

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._tls.readinto(memoryview(buffer).cast("B"))

    def close(self) -> None:
        self._held.close()
        super().close()
