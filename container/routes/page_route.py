"""GET /: a page that shows the endpoint's state in a browser, if ENDPOINT_PAGE is set.

Its Content-Security-Policy allows only its own script and stylesheet, and calls to this endpoint. So it loads nothing
from other servers, and never runs text as code.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from flask import Blueprint, Response, abort, request

from container.requests.origin_check import check_host
from container.routes.json_views import reply
from container.routes.page_metrics import page_state
from container.service import Service
from handler.config.config_rows import rows

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("page", __name__)
    if not service.config.page:
        return routes
    directory = Path(str(files("container").joinpath("page")))
    served = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*")}
    routes.before_request(lambda: check_host(request))

    @routes.get("/page/state")
    def state() -> Response:
        return reply(page_state(service), HEADERS)

    @routes.get("/page/settings")
    def settings() -> Response:
        return reply([{**row.document(), "given": row.given} for row in rows(service.config)], HEADERS)

    @routes.get("/page/requests")
    def requests() -> Response:
        return reply(list(service.observer.recent.copy()), HEADERS)

    @routes.get("/")
    def page() -> Response:
        return page_file("page.html")

    @routes.get("/page/<path:name>")
    def page_file(name: str) -> Response:
        path = served.get(name)
        if path is None or path.suffix not in CONTENT_TYPES:
            abort(404)
        return Response(path.read_bytes(), content_type=CONTENT_TYPES[path.suffix], headers=HEADERS)

    return routes
