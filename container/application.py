"""The Flask application factory."""

from __future__ import annotations

from flask import Flask

from container import errors
from container.routes import health, inference, metrics, models
from container.service import Service


def create_app(service: Service) -> Flask:
    """The container's application over one service. Nothing is started here."""
    app = Flask("container", static_folder=None)
    app.url_map.strict_slashes = False
    errors.register(app, service.config.max_body)
    for routes in (health, inference, metrics, models):
        app.register_blueprint(routes.blueprint(service))
    return app
