"""A stand-in for S3 with the failures, and the page sizes, that a real server has only rarely."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs


class ScriptedS3:
    """Lists `objects` below `m/` of every bucket, and serves them.

    :param denied: the object that is answered 403.
    :param broken: the object whose connection closes in the middle.
    :param shrunk: the object that is shorter than it was listed.
    :param page: keys in one page of a listing.
    """

    def __init__(
        self, objects: dict[str, bytes], *, denied: str = "", broken: str = "", shrunk: str = "", page: int = 1000
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, body: bool) -> None:
                path, _, query = self.path.partition("?")
                name = path.rpartition("/")[2]
                content = objects.get(name, b"")
                status, length = 200, None
                if "list-type=2" in query:
                    after = parse_qs(query).get("continuation-token", ["0"])[0]
                    content = listing(objects, int(after), page)
                elif name == denied:
                    status, content = 403, b""
                elif name == shrunk:
                    content = content[:4]
                elif name == broken and body:
                    length, content = len(content), content[:4]
                self.send_response(status)
                self.send_header("Content-Length", str(length or len(content)))
                self.send_header("ETag", '"0"')
                self.end_headers()
                if body:
                    self.wfile.write(content)
                self.close_connection = length is not None

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ScriptedS3:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


MODIFIED = "<LastModified>2026-01-02T03:04:05.000Z</LastModified>"


def listing(objects: dict[str, bytes], begin: int, page: int) -> bytes:
    end = begin + page
    entries = "".join(
        f"<Contents><Key>m/{name}</Key><Size>{len(content)}</Size><ETag>0</ETag>{MODIFIED}</Contents>"
        for name, content in list(objects.items())[begin:end]
    )
    more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < len(objects) else ""
    truncated = str(bool(more)).lower()
    return f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{entries}</ListBucketResult>".encode()
