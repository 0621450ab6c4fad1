"""A connection and its request pass from one process to the next."""

from __future__ import annotations

import socket
from contextlib import suppress

from container.recovery.request_channel import RequestChannel, RequestNote, request_bytes
from container.requests.deadline import Deadline

NOTE = RequestNote("an-id", 5.0, Deadline(58.0, 63.0, stream=True))


def test_the_client_stays_connected_when_the_sender_closes_its_socket() -> None:
    channel, (server, client) = RequestChannel(), socket.socketpair()
    request = b"POST / HTTP/1.1\r\n\r\n" + b"x" * 3_000_000  # more than a message can hold
    with server:
        channel.send(server.fileno(), request, NOTE)
    handed = channel.receive()
    assert handed is not None
    assert (handed.request, handed.note) == (request, NOTE)
    with client, handed.connection as connection:
        connection.sendall(b"reply")
        assert client.recv(9) == b"reply"
    assert channel.receive() is None


def test_a_full_channel_is_an_error_and_what_it_holds_still_arrives() -> None:
    channel, (server, client) = RequestChannel(), socket.socketpair()
    sent = received = 0
    with server, client, suppress(OSError):
        while sent < 100_000:
            channel.send(server.fileno(), b"", NOTE)
            sent += 1
    assert 128 <= sent < 100_000
    while (handed := channel.receive()) is not None:
        handed.connection.close()
        received += 1
    assert received == sent


def test_a_request_is_sent_again_with_its_headers_and_its_length() -> None:
    environ = {
        "REQUEST_METHOD": "POST",
        "RAW_URI": "/invocations?a=b",
        "PATH_INFO": "/invocations",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "",
        "HTTP_HOST": "x",
        "HTTP_EXPECT": "100-continue",
        "HTTP_TRANSFER_ENCODING": "chunked",
        "HTTP_CONNECTION": "keep-alive",
        "HTTP_X_AMZN_SAGEMAKER_INFERENCE_ID": "é",
    }
    assert request_bytes(environ, b"{}") == (
        b"POST /invocations?a=b HTTP/1.1\r\nHOST: x\r\nX-AMZN-SAGEMAKER-INFERENCE-ID: \xe9\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    )
