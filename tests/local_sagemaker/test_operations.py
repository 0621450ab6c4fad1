"""The operations that docs/local-sagemaker.md claims, on the wire, out of all that botocore knows."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import botocore.session

from tests.local_sagemaker.local_service import Cloud

PAGE = Path(__file__).parents[2] / "docs" / "local-sagemaker.md"
# The kinds of resources of a row of the page, by the row's first cell.
KINDS = {
    "models, configurations": ("Model", "EndpointConfig"),
    "endpoints": ("Endpoint",),
    "inference components": ("InferenceComponent",),
    "batch transform": ("TransformJob",),
}


def claimed() -> set[str]:
    """The operations of the page's table. A verb alone is meant for each kind of the row."""
    operations = set()
    for area, cell in re.findall(r"^\| ([a-z ,]+) \| ([A-Z][^|]+) \|$", PAGE.read_text(), re.MULTILINE):
        for word in re.findall(r"\b[A-Z]\w+", cell):
            verbs = word in ("Create", "Describe", "List", "Update", "Delete", "Stop")
            operations |= {f"{word}{kind}{'s' * (word == 'List')}" for kind in KINDS[area]} if verbs else {word}
    return operations - {"NAME"}


def test_every_other_operation_is_answered_as_unknown(cloud: Cloud) -> None:
    session = botocore.session.get_session()
    maker, runtime = (session.get_service_model(name) for name in ("sagemaker", "sagemaker-runtime"))
    url = urlsplit(cloud.service.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    known = set(runtime.operation_names)
    for operation in [*maker.operation_names, "NoSuchOperation"]:
        target = f"{maker.metadata['targetPrefix']}.{operation}"
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
        connection.request("POST", "/", b'{"NextToken": 1}', headers)  # of a wrong type: nothing is done
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        assert reply.status == 400, operation
        if answer["__type"] != "UnknownOperationException":
            known.add(operation)
    assert known == claimed()
    connection.request("POST", "/endpoints/e/no-such-thing", b"{}")
    reply = connection.getresponse()
    assert (reply.status, reply.getheader("x-amzn-errortype")) == (404, "UnknownOperationException")
    connection.close()
