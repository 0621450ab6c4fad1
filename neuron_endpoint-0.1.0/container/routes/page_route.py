"""GET /: a page that shows the endpoint's state in a browser, if ENDPOINT_PAGE is set.

Its Content-Security-Policy allows only its own script and stylesheet, and calls to this endpoint. So it loads nothing
from other servers, and never runs text as code.
"""

from __future__ import annotations

from importlib.resources import files

from flask import Blueprint, Response, render_template_string, request

from container.requests.origin_check import check_host
from container.routes.page_metrics import page_state
from container.service import Service
from handler.config.config_rows import rows
from handler.schemas.reply import encode

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
CONTENT_TYPES = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("page", __name__)
    if not service.config.page:
        return routes
    page_files = files("container").joinpath("page")
    template = page_files.joinpath("page.html").read_text(encoding="utf-8")

    routes.before_request(lambda: check_host(request))

    @routes.get("/")
    def page() -> Response:
        settings = sorted(rows(service.config), key=lambda row: not row.given)
        html = render_template_string(template, now=page_state(service), settings=settings)
        return Response(html, content_type="text/html; charset=utf-8", headers=HEADERS)

    @routes.get("/page/state")
    def state() -> Response:
        return Response(encode(page_state(service)), content_type="application/json", headers=HEADERS)

    def page_file(name: str) -> Response:
        return Response(page_files.joinpath(name).read_bytes(), content_type=CONTENT_TYPES[name], headers=HEADERS)

    for name in CONTENT_TYPES:
        routes.add_url_rule(
            f"/page/{name}", endpoint=name.replace(".", "_"), view_func=page_file, defaults={"name": name}
        )
    return routes
