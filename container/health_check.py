"""The image's health check: `python -m container.health_check` exits with 0 if `/ping` answers 200, else with 1.

It needs no shell and no curl, and imports nothing that is heavy.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping

SECONDS = 2.0  # SageMaker gives /ping the same time.


def healthy(environ: Mapping[str, str]) -> bool:
    """Asks `/ping` on the port that the variables name. An empty one is none, as in the settings."""
    port = environ.get("SAGEMAKER_BIND_TO_PORT") or environ.get("ENDPOINT_PORT") or "8080"
    connection = http.client.HTTPConnection("127.0.0.1", int(port), SECONDS)
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


if __name__ == "__main__":
    sys.exit(0 if healthy(os.environ) else 1)
