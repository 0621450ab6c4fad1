"""GET /: a page for people, where ENDPOINT_PAGE asks for it. It loads nothing from anywhere else, and runs no text as
code: its Content-Security-Policy allows its own script and stylesheet, and calls to this endpoint."""

from __future__ import annotations

from importlib.resources import files

from flask import Blueprint, Response, render_template_string

from container.routes.page_metrics import page_figures
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
KINDS = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("page", __name__)
    if not service.config.page:
        return routes
    parts = files("container").joinpath("page")
    template = parts.joinpath("page.html").read_text(encoding="utf-8")

    @routes.get("/")
    def page() -> Response:
        settings = sorted(rows(service.config), key=lambda row: not row.given)
        html = render_template_string(template, now=page_figures(service), settings=settings)
        return Response(html, content_type="text/html; charset=utf-8", headers=HEADERS)

    @routes.get("/page/state")
    def state() -> Response:
        return Response(encode(page_figures(service)), content_type="application/json", headers=HEADERS)

    def part(name: str) -> Response:
        return Response(parts.joinpath(name).read_bytes(), content_type=KINDS[name], headers=HEADERS)

    for name in KINDS:
        routes.add_url_rule(f"/page/{name}", endpoint=name.replace(".", "_"), view_func=part, defaults={"name": name})
    return routes
