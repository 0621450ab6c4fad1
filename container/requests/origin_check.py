"""Rejects requests that a web page of another origin sends through its visitor's browser.

A browser names the page's origin in every cross-origin POST and in every WebSocket handshake. Clients that are not
browsers send no `Origin`. Reading the replies is up to CORS: this endpoint allows it to nobody.
"""

from __future__ import annotations

import ipaddress
import socket

from werkzeug.wrappers import Request

from handler.errors import ForeignHost, ForeignOrigin
from handler.urls import url_parts

READING = frozenset(("GET", "HEAD", "OPTIONS"))


def check_origin(request: Request) -> None:
    """:raises ForeignOrigin: the request changes something, or opens a WebSocket, for a page of another origin."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    reads = request.method in READING and "Upgrade" not in request.headers
    # Not `request.host`, which is empty where a name has "_".
    host = request.headers.get("Host", "").lower().removesuffix(":80")
    if not reads and _host(origin) != host:
        raise ForeignOrigin(origin)


def _host(origin: str) -> str | None:
    """None: the origin is opaque (`null`), or none at all."""
    return url_parts(origin).netloc or None


def check_host(request: Request) -> None:
    """Protects the page: a foreign name that resolves to this machine makes a browser take it for the same origin.

    :raises ForeignHost: the host is neither an address, nor localhost, nor this machine's name.
    """
    name = url_parts(f"//{request.host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost") or name == socket.gethostname().lower():
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise ForeignHost(name) from None
