"""/v1/files and /v1/batches: OpenAI's Files and Batch APIs, for work that may wait for an idle engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, request

from container.requests.request_body import FORM
from container.routes.json_views import body_fields, number, reply
from container.service import Service
from handler.batches.batch_objects import BatchesOff, RecordDamaged
from handler.batches.batches import KEPT, Batches, BatchFields
from handler.errors import InvalidField, MissingField, NothingStored, UnsupportedField, UnsupportedMediaType

# The page lengths of OpenAI's lists.
FILES_LIMIT, BATCHES_LIMIT = 10_000, 20


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("batches", __name__)

    def batches() -> Batches:
        service.require_engine()
        if service.batches is None:
            raise BatchesOff
        return service.batches

    @routes.post("/v1/files")
    def upload() -> Response:
        served = batches()
        if request.mimetype != FORM:
            raise UnsupportedMediaType(request.headers.get("Content-Type", ""), FORM)
        file, purpose = request.files.get("file"), request.form.get("purpose")
        if file is None:
            raise MissingField("file", "send a form with 'file' and 'purpose'")
        if not purpose:
            raise MissingField("purpose", "send 'batch'")
        if any(name.startswith("expires_after") for name in request.form):
            raise UnsupportedField("expires_after", KEPT)
        return reply(served.add_file(file.filename or "file", purpose, file.read()))

    @routes.get("/v1/files")
    def files() -> Response:
        served = batches()
        return listing(served.store.file_ids(), served.store.file, FILES_LIMIT, request.args.get("purpose"))

    @routes.get("/v1/files/<identity>")
    def file(identity: str) -> Response:
        return reply(batches().store.file(identity))

    @routes.get("/v1/files/<identity>/content")
    def content(identity: str) -> Response:
        store = batches().store
        size = store.file(identity).bytes
        headers = {"Content-Length": str(size)}
        return Response(store.content(identity), headers=headers, content_type="application/octet-stream")

    @routes.delete("/v1/files/<identity>")
    def delete(identity: str) -> Response:
        batches().store.delete_file(identity)
        return reply({"id": identity, "object": "file", "deleted": True})

    @routes.post("/v1/batches")
    def create() -> Response:
        served = batches()
        service.ready_engine()  # a batch needs the engine of the start
        return reply(served.create(body_fields(BatchFields)))

    @routes.get("/v1/batches")
    def created() -> Response:
        served = batches()
        return listing(served.store.batch_ids(), served.get, BATCHES_LIMIT)

    @routes.get("/v1/batches/<identity>")
    def batch(identity: str) -> Response:
        return reply(batches().get(identity))

    @routes.post("/v1/batches/<identity>/cancel")
    def cancel(identity: str) -> Response:
        return reply(batches().cancel(identity))

    return routes


def listing(ids: list[str], get: Callable[[str], Any], default: int, purpose: str | None = None) -> Response:
    """A page of a list, as OpenAI writes it.

    :param ids: the newest first.
    :param purpose: that of the files in the list. None: any.
    :raises InvalidField: `limit`, `after` or `order` cannot be used.
    """
    limit = number("limit", default, 1)
    order, after = request.args.get("order", "desc"), request.args.get("after")
    if order not in ("asc", "desc"):
        raise InvalidField("order", "it must be 'asc' or 'desc'")
    if order == "asc":
        ids = ids[::-1]
    if after:
        if after not in ids:
            raise InvalidField("after", "there is no such id in the list")
        ids = ids[ids.index(after) + 1 :]
    data: list[Any] = []
    for identity in ids:
        try:
            record = get(identity)
        except (NothingStored, RecordDamaged):
            continue  # deleted after it was listed, or never whole
        if purpose is None or record.purpose == purpose:
            data.append(record)
        if len(data) > limit:
            break
    has_more, data = len(data) > limit, data[:limit]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    page = {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}
    return reply(page)
