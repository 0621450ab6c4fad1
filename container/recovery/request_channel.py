"""Passes a client's connection and its request from a serving process to the one that replaces it.

The master makes the channel. So a message, with the descriptors in it, outlives its sender (unix(7), SCM_RIGHTS). A
request is in a memory file, because a message may be no larger than the channel's buffer.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from container.requests.deadline import Deadline

LARGEST_MESSAGE = 4096
# The kernel charges each message about 1 KiB. A request that finds the channel full gets its error.
CHANNEL_BYTES = 1 << 20
DESCRIPTORS = 2
# Variables that become no header: they describe how the request was sent the first time.
DROPPED = frozenset(("HTTP_CONNECTION", "HTTP_EXPECT", "HTTP_TRANSFER_ENCODING"))


@dataclass(frozen=True, slots=True)
class RequestNote:
    """What the next process needs beside the request's bytes.

    :param began: monotonic seconds, which are the same in all processes of a machine.
    """

    request_id: str
    began: float
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class HandedRequest:
    """A request that the next process runs.

    :param request: its bytes. They end the connection after the reply.
    """

    connection: socket.socket
    request: bytes
    note: RequestNote


_NOTES = msgspec.json.Decoder(RequestNote)


class RequestChannel:
    """The channel between serving processes. Neither end blocks."""

    def __init__(self) -> None:
        self._sender, self._receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHANNEL_BYTES)
        self._sender.setblocking(False)
        self._receiver.setblocking(False)

    def send(self, descriptor: int, request: bytes, note: RequestNote) -> None:
        """Sends a request. The caller then closes its own socket, without a shutdown.

        :param descriptor: of the client's connection.
        :param request: its bytes.

        :raises OSError: the channel is full, or there are no descriptors left.
        """
        memory = os.memfd_create("request")
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(request)
            message = msgspec.json.encode(note)
            socket.send_fds(self._sender, [message], [descriptor, memory])
        finally:
            os.close(memory)

    def receive(self) -> HandedRequest | None:
        """The next request. None if none waits."""
        while True:
            try:
                message, descriptors, *_ = socket.recv_fds(self._receiver, LARGEST_MESSAGE, DESCRIPTORS)
            except BlockingIOError:
                return None
            if len(descriptors) == DESCRIPTORS:
                break
            for descriptor in descriptors:  # this process had none left for the others
                os.close(descriptor)
        with open(descriptors[1], "rb") as file:
            file.seek(0)
            return HandedRequest(socket.socket(fileno=descriptors[0]), file.read(), _NOTES.decode(message))


def request_bytes(environ: Mapping[str, Any], body: bytes) -> bytes:
    """The bytes of a request that was read already, as a request with a `Content-Length` that ends its connection."""
    target = environ.get("RAW_URI") or environ["PATH_INFO"]
    headers = {
        key[5:].replace("_", "-"): value
        for key, value in environ.items()
        if key.startswith("HTTP_") and key not in DROPPED
    }
    headers |= {"Content-Type": environ.get("CONTENT_TYPE", ""), "Content-Length": len(body), "Connection": "close"}
    lines = [f"{environ['REQUEST_METHOD']} {target} {environ.get('SERVER_PROTOCOL', 'HTTP/1.1')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
