"""A client of the whole application in this process: real HTTP over a socket pair, and werkzeug's test replies."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from string import punctuation
from typing import Any
from urllib.parse import quote

import pytest
from werkzeug.test import Client, TestResponse

from container.application import RequestRouter, create_app
from container.http.connections import Connections
from container.service import Service
from tests.handler.waiting import WITHIN


def connections_of(service: Service) -> Connections:
    """The connections to the application."""
    application = RequestRouter(service, create_app(service))
    return Connections(service.loop, application.answer, service.observer, service.bodies)


def http_client(service: Service, *, half_closes: bool = False) -> Client:
    """The client. Each request has a connection of its own, which ends with the reply, or as the reply is closed.

    A stream that the server breaks off raises IncompleteRead where it is read.

    :param half_closes: the client ends its side of the connection after each request.
    """
    connections = connections_of(service)

    def forward(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        connection = HTTPConnection("localhost")
        server, connection.sock = socket.socketpair()
        connection.sock.settimeout(WITHIN)
        service.loop.call(connections.take, server)
        method, target = environ["REQUEST_METHOD"], quote(environ["REQUEST_URI"].encode("latin-1"), punctuation)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in environ.items():
            if name.startswith(("HTTP_", "CONTENT_")):
                connection.putheader(name.removeprefix("HTTP_").replace("_", "-").title(), str(value))
        connection.endheaders(environ["wsgi.input"].read())
        if half_closes:
            connection.sock.shutdown(socket.SHUT_WR)
        response = connection.getresponse()
        start_response(f"{response.status} {response.reason}", response.getheaders())
        pieces = Pieces(connection, response)
        return pieces if response.chunked else list(pieces)

    return Client(forward, use_cookies=False)


class Pieces:
    """The pieces of a reply's body, as they arrive."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection, self._response = connection, response

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._response.read1(1 << 20):
            yield piece
        self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def broken_body(reply: TestResponse) -> bytes:
    """The body of a reply, not buffered, that ends without the end mark that means success."""
    pieces: list[bytes] = []
    with pytest.raises(IncompleteRead):
        pieces.extend(reply.iter_encoded())
    reply.close()
    return b"".join(pieces)
