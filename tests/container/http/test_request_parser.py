"""Requests from bytes: what each says, where it ends, and what is no request."""

from __future__ import annotations

import pytest

from container.http.request_parser import MAX_FIELD, MAX_FIELDS, MAX_HEAD, MAX_LINE, RequestHead, RequestParser
from handler.errors import EndpointError


class Received:
    """Whoever a parser calls."""

    def __init__(self, *, converses: bool = False) -> None:
        self.heads: list[RequestHead] = []
        self.bodies: list[bytes] = []
        self.whole = 0
        self.other = b""
        self.converses = converses

    def head_complete(self, head: RequestHead) -> None:
        self.heads.append(head)
        self.bodies.append(b"")

    def body_arrived(self, piece: bytes) -> None:
        self.bodies[-1] += piece

    def request_complete(self) -> bool:
        self.whole += 1
        return self.converses

    def other_protocol(self, received: bytes) -> None:
        self.other += received


def post(*headers: str, path: str = "/invocations", version: str = "1.1") -> bytes:
    return "\r\n".join((f"POST {path} HTTP/{version}", "Host: x", *headers, "", "")).encode("latin-1")


def received(*pieces: bytes, converses: bool = False) -> Received:
    found = Received(converses=converses)
    parser = RequestParser(found)
    for piece in pieces:
        parser.feed(piece)
    return found


@pytest.mark.parametrize("start", [b"0\r\nX: ", b"0\r\n" + b"X: a\r\n" * 3, b"1;", b"1;a="])
def test_what_follows_a_head_and_is_no_body_is_bounded(start: bytes) -> None:
    parser = RequestParser(Received())
    parser.feed(post("Transfer-Encoding: chunked") + start)

    def flood() -> None:
        for _ in range(MAX_HEAD // 1024 + 1):
            parser.feed(b"a" * 1024)

    with pytest.raises(EndpointError):
        flood()


def test_many_small_chunks_with_extensions_and_a_trailer_are_a_body() -> None:
    found = received(post("Transfer-Encoding: chunked"), *[b"1;why=not\r\na\r\n" * 500] * 100, b"0\r\nX: a\r\n\r\n")
    assert (found.bodies, found.whole) == ([b"a" * 50_000], 1)


def test_a_request_is_its_wsgi_environment() -> None:
    sent = post("content-type: application/json", "Content-Length: 2", "X-Amzn-Id:  a b ", path="/a%2Fb%20c?d=%20")
    found = received(sent + b"{}")
    (head,) = found.heads
    assert head.environ == {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/a/b c",
        "QUERY_STRING": "d=%20",
        "RAW_URI": "/a%2Fb%20c?d=%20",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "x",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "2",
        "HTTP_X_AMZN_ID": "a b",
    }
    assert (head.length, head.keep_alive, head.expects, head.upgrades) == (2, True, False, False)
    assert (found.bodies, found.whole) == ([b"{}"], 1)


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_requests_in_pieces_are_the_same(size: int) -> None:
    chunks = b'3\r\n{"a\r\n3\r\n":1\r\n1;x=y\r\n}\r\n0\r\nTrailer: t\r\n\r\n'
    sent = post("Transfer-Encoding: chunked") + chunks + post("Content-Length: 2") + b"{}" + post()
    found = received(*(sent[start : start + size] for start in range(0, len(sent), size)))
    assert found.bodies == [b'{"a":1}', b"{}", b""]
    assert [head.length for head in found.heads] == [None, 2, 0]
    assert all("HTTP_TRAILER" not in head.environ for head in found.heads)
    assert found.whole == 3


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/", "/", ""),
        ("//a?b?c", "//a", "b?c"),
        ("/a#b", "/a", ""),
        ("http://other:8080/a?b", "/a", "b"),
        ("http://other", "/", ""),
        ("/%ff", "/\xff", ""),
        ("/%", "/%", ""),
    ],
)
def test_targets(target: str, path: str, query: str) -> None:
    environ = received(post(path=target)).heads[0].environ
    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == (path, query)


def test_headers_that_occur_twice_are_a_list_and_an_underscore_is_no_hyphen() -> None:
    environ = received(post("Accept: a", "Accept: b", "Cookie: a", "Cookie: b", "X_Amzn_Id: c")).heads[0].environ
    assert environ["HTTP_ACCEPT"] == "a,b"
    assert environ["HTTP_COOKIE"] == "a;b"
    assert "HTTP_X_AMZN_ID" not in environ


@pytest.mark.parametrize(
    ("sent", "keeps"),
    [
        (post(), True),
        (post("Connection: close"), False),
        (post(version="1.0"), False),
        (post("Connection: keep-alive", version="1.0"), True),
    ],
)
def test_whether_the_connection_is_kept(sent: bytes, keeps: bool) -> None:
    assert received(sent).heads[0].keep_alive is keeps


def test_an_expectation_is_one_only_with_a_body_and_in_http_1_1() -> None:
    expect = "Expect: 100-continue"
    assert received(post(expect, "Content-Length: 1")).heads[0].expects
    assert received(post(expect, "Transfer-Encoding: chunked")).heads[0].expects
    assert not received(post(expect)).heads[0].expects
    assert not received(post(expect, "Content-Length: 1", version="1.0")).heads[0].expects


UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")


def test_what_follows_a_handshake_is_the_other_protocols() -> None:
    found = received(post(*UPGRADE) + b"\x81\x00", converses=True)
    assert found.heads[0].upgrades
    assert found.other == b"\x81\x00"


def test_what_follows_a_handshake_that_nobody_takes_is_a_request() -> None:
    found = received(post("Connection: Upgrade", "Upgrade: h2c") + post())
    assert [head.upgrades for head in found.heads] == [False, False]
    assert found.whole == 2


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_body_of_a_request_that_offers_an_upgrade_is_no_request(size: int) -> None:
    """Java's HttpClient offers one over plain HTTP. The offer is not taken."""
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c")
    smuggled = b"GET /page/settings HTTP/1.1\r\nHost: x\r\n\r\n"
    chunked = b"%x\r\n%b\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(smuggled), smuggled)
    requests = [
        post(*offer, f"Content-Length: {len(smuggled)}") + smuggled,
        post(*offer, "Transfer-Encoding: chunked") + chunked,
        post(*offer),
        post(*UPGRADE, f"Content-Length: {len(smuggled)}") + smuggled,
        post("Content-Length: 2") + b"ab",
    ]
    sent = b"".join(requests)
    found = received(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert [(head.environ["REQUEST_METHOD"], head.upgrades) for head in found.heads] == [("POST", False)] * 5
    assert (found.whole, found.bodies) == (5, [smuggled, smuggled, b"", smuggled, b"ab"])


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"secret\r\n\r\n", 400),
        (b"\x16\x03\x01", 400),
        (b"SECRET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST secret HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT secret:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
        (post(version="2.0"), 400),
        (post(version="1.2"), 400),
        (post("Content-Length: 2", "Content-Length: 2"), 400),
        (post("Content-Length: 2", "Transfer-Encoding: chunked"), 400),
        (post("Content-Length: -2"), 400),
        (post("Content-Length: +2"), 400),
        (post("Content-Length: 2_0"), 400),
        (post("Content-Length: " + "9" * 30), 400),
        (post("Transfer-Encoding: gzip, chunked"), 400),
        (post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400),
        (post("Transfer-Encoding: secret"), 400),
        (post("Transfer-Encoding: chunked", version="1.0"), 400),
        (post("secret"), 400),
        (post("a b: c"), 400),
        (post("a : c"), 400),
        (post("a: \x00"), 400),
        (post("Transfer-Encoding: chunked") + b"secret\r\n", 400),
        (post("Transfer-Encoding: chunked") + b"1\r\n{}\r\n", 400),
        (post("Expect: secret"), 417),
        (post(path="/" + "s" * MAX_LINE), 414),
        (post("A: " + "s" * MAX_FIELD), 431),
        (post(*["A: s"] * (MAX_FIELDS + 1)), 431),
    ],
)
def test_what_is_no_request_is_an_error_that_repeats_nothing(sent: bytes, status: int) -> None:
    with pytest.raises(EndpointError) as caught:
        received(sent, b"")
    assert caught.value.status == status
    assert "secret" not in caught.value.message.lower()


@pytest.mark.parametrize("head", [b"POST /", b"POST / HTTP/1.1\r\nHost: x\r\nA: "])
def test_a_head_that_does_not_end_is_an_error(head: bytes) -> None:
    parser = RequestParser(Received())
    parser.feed(head)
    pieces = [b"s" * 1000] * (MAX_HEAD // 1000 + 2)
    with pytest.raises(EndpointError) as caught:
        list(map(parser.feed, pieces))
    assert caught.value.status in (414, 431)
