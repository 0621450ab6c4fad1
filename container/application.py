"""The Flask application factory."""

from __future__ import annotations

from flask import Flask, request

from container.openapi import openapi_route as openapi
from container.pipeline.custom_code_reply import reply_of_code
from container.requests import error_responses as errors
from container.requests.body_budget import bound_bodies
from container.requests.http_limits import max_body
from container.requests.origin_check import check_origin
from container.routes import adapter_routes as adapters
from container.routes import batch_routes as batches
from container.routes import execution_parameters as transform
from container.routes import invocations as inference
from container.routes import model_list as models
from container.routes import model_routes as multi_model
from container.routes import page_route as page
from container.routes import ping as health
from container.routes import prometheus as metrics
from container.routes import websocket_route as bidirectional
from container.service import Service
from container.telemetry.request_observer import observe


def create_app(service: Service) -> Flask:
    """The Flask application for one service. Starts nothing."""
    app = Flask("container", static_folder=None)
    app.url_map.strict_slashes = False
    errors.register(app, max_body(service.config))
    app.before_request(lambda: check_origin(request))
    app.before_request(lambda: reply_of_code(service, request))
    own = (health, inference, metrics, models, transform, adapters, multi_model, batches, bidirectional, page, openapi)
    for routes in own:
        app.register_blueprint(routes.blueprint(service))
    bound_bodies(app, service.bodies)
    observe(app, service.observer)
    return app
