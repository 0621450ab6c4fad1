"""The Flask application factory."""

from __future__ import annotations

from flask import Flask

from container import errors
from container.limits import max_body
from container.observer import observe
from container.routes import (
    adapters,
    bidirectional,
    health,
    inference,
    metrics,
    models,
    multi_model,
    openapi,
    page,
    transform,
)
from container.service import Service


def create_app(service: Service) -> Flask:
    """The container's application over one service. Nothing is started here."""
    app = Flask("container", static_folder=None)
    app.url_map.strict_slashes = False
    errors.register(app, max_body(service.config))
    for routes in (health, inference, metrics, models, transform, adapters, multi_model, bidirectional, page, openapi):
        app.register_blueprint(routes.blueprint(service))
    observe(app, service.observer)
    return app
