"""The image's health check: `python -m container.health_check` exits with 0 if `/ping` answers 200, else with 1.

It needs no shell and no curl, and imports nothing that is heavy: of the settings only what reads the document.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping

PORT = 8080
SECONDS = 2.0  # SageMaker gives /ping the same time.


def healthy(environ: Mapping[str, str]) -> bool:
    """Asks `/ping` on the port of the settings. A port that cannot be read just now is no fault of the endpoint's."""
    port = port_of(environ)
    if port is None:
        return True
    connection = http.client.HTTPConnection("127.0.0.1", port, SECONDS)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def port_of(environ: Mapping[str, str]) -> int | None:
    """The port that the variables name, or else the document. An empty variable is none, as in the settings.

    :return: None if the document cannot be read: S3 may not answer. An endpoint whose start could not has ended.
    """
    for name in ("SAGEMAKER_BIND_TO_PORT", "ENDPOINT_PORT"):
        if port := environ.get(name, "").strip():
            return int(port)
    document = environ.get("ENDPOINT_CONFIG", "").strip()
    if not document:
        return PORT
    from handler.config.assignment import Assignment
    from handler.config.loading.file_reader import fetch
    from handler.config.loading.setting_files import of_named_document
    from handler.errors import EndpointError

    settings = tuple(of_named_document(document, fetch))
    if any(isinstance(each, EndpointError) for each in settings):
        return None
    ports = (each.value for each in settings if isinstance(each, Assignment) and each.field == "port")
    return int(str(next(ports, PORT)))


if __name__ == "__main__":
    sys.exit(0 if healthy(os.environ) else 1)
