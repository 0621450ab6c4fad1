"""/v1/files and /v1/batches through the openai client: a real gunicorn, and an engine whose tokens are scripted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from werkzeug.test import Client as HttpClient

from container.service import Service
from handler.config.endpoint_config import EndpointConfig
from handler.startup.multi_model import model_start
from handler.startup.multi_model.model_registry import ModelRegistry
from tests.container.http_client import http_client
from tests.container.scripted_engine import ScriptedEngine, ready_service
from tests.container.scripted_process import Server
from tests.handler.waiting import eventually

ENDED = {"completed", "failed", "cancelled", "expired"}
FORM = "multipart/form-data; boundary=b"


def lines(*prompts: str, **fields: Any) -> bytes:
    rows = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": "scripted", "prompt": prompt, **fields},
        }
        for number, prompt in enumerate(prompts)
    ]
    return b"\n".join(json.dumps(row).encode() for row in rows)


class Client:
    """The openai client, and the server that it speaks to."""

    def __init__(self, directory: Path) -> None:
        import openai

        self.server = Server(directory / "errors.log", f"--batches={directory / 'store'}", "--body=100000", "--patient")
        self.api = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)

    def create(self, content: bytes) -> str:
        uploaded = self.api.files.create(file=("input.jsonl", content), purpose="batch")
        batch = self.api.batches.create(
            input_file_id=uploaded.id,
            endpoint="/v1/completions",
            completion_window="24h",
            metadata={"job": "one"},
        )
        return batch.id

    def batch(self, identity: str) -> Any:
        return self.api.batches.retrieve(identity)

    def ended(self, identity: str) -> Any:
        eventually(lambda: self.batch(identity).status in ENDED)
        return self.batch(identity)

    def rows(self, identity: str | None) -> dict[str, Any]:
        assert identity is not None
        found = [json.loads(line) for line in self.api.files.content(identity).text.splitlines()]
        assert len({row["custom_id"] for row in found}) == len(found)
        return {row["custom_id"]: row for row in found}

    def kill(self) -> None:
        """As when a container is killed: SIGKILL to every process at once."""
        parent = psutil.Process(self.server.process.pid)
        for process in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.server.process.communicate()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path)
    yield client
    client.server.stop()


def test_a_batch_from_its_upload_to_its_files(client: Client) -> None:
    import openai

    identity = client.create(lines("a|b", "c") + b"\n\n" + lines("d", max_tokens=-1).replace(b"line-0", b"bad") + b"\n")
    batch = client.ended(identity)
    assert (batch.status, batch.metadata, batch.endpoint) == ("completed", {"job": "one"}, "/v1/completions")
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (3, 2, 1)
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at < batch.expires_at
    rows = client.rows(batch.output_file_id)
    assert {name: row["response"]["body"]["choices"][0]["text"] for name, row in rows.items()} == {
        "line-0": "ab",
        "line-1": "c",
    }
    assert all(row["error"] is None and row["response"]["status_code"] == 200 for row in rows.values())
    failed = client.rows(batch.error_file_id)["bad"]["response"]
    assert (failed["status_code"], failed["body"]["error"]["param"]) == (400, "max_tokens")
    second = client.create(lines("e"))
    assert [each.id for each in client.api.batches.list(limit=1)] == [second, identity]  # the client asks for each page
    files = [each.id for each in client.api.files.list()]
    assert {batch.input_file_id, batch.output_file_id, batch.error_file_id} <= {*files}
    assert client.api.files.retrieve(batch.output_file_id).purpose == "batch_output"
    assert client.api.files.delete(batch.output_file_id).deleted
    with pytest.raises(openai.NotFoundError):
        client.api.files.content(batch.output_file_id)


def test_a_damaged_record_is_named_and_hides_no_other(client: Client, tmp_path: Path) -> None:
    import openai

    batches = [client.create(lines("a")) for _ in range(2)]
    kept, damaged = (client.ended(identity) for identity in batches)
    places = [f"files/{damaged.input_file_id}/file.json", f"batches/{damaged.id}/batch.json"]
    for place in places:
        (next(tmp_path.rglob(place))).write_bytes(b"{")
    assert [each.id for each in client.api.batches.list()] == [kept.id]
    files = {each.id for each in client.api.files.list()}
    assert {kept.input_file_id, damaged.output_file_id} <= files
    assert damaged.input_file_id not in files
    gets = (client.api.files.retrieve, damaged.input_file_id), (client.api.batches.retrieve, damaged.id)
    for (get, identity), place in zip(gets, places, strict=True):
        with pytest.raises(openai.InternalServerError, match=f"'{place}' in ENDPOINT_BATCH_STORE cannot be read"):
            get(identity)


def test_a_kill_loses_no_reply_and_asks_no_request_twice(tmp_path: Path) -> None:
    first = Client(tmp_path)
    identity = first.create(lines("a", "b", "<gate:kill>|c", "d", "e"))
    eventually(lambda: first.batch(identity).request_counts.completed == 2)
    eventually(lambda: first.server.seen()["begun"] == 3)
    first.kill()
    second = Client(tmp_path)
    try:
        eventually(lambda: second.server.seen()["begun"] == 1)
        second.server.open("kill")
        batch = second.ended(identity)
        assert (batch.status, batch.request_counts.completed, batch.error_file_id) == ("completed", 5, None)
        rows = second.rows(batch.output_file_id)
        assert {row["response"]["body"]["choices"][0]["text"] for row in rows.values()} == {*"abcde"}
        assert second.server.seen()["begun"] == 3  # those without a stored reply
    finally:
        second.server.stop()


def test_live_requests_come_first(client: Client) -> None:
    """The engine has three slots: a batch uses one of them, and none while a live request runs."""

    def live(prompt: str) -> str:
        return client.api.completions.create(model="scripted", prompt=prompt).choices[0].text

    with client.api.completions.create(model="scripted", prompt="x|<gate:live>|y", stream=True) as running:
        next(iter(running))
        identity = client.create(lines("a", "<gate:batch>|b", "c"))
        eventually(lambda: client.batch(identity).status == "in_progress")
        assert [live(text) for text in "pqr"] == [*"pqr"]
        assert client.server.seen()["begun"] == 4  # no request of the batch
        client.server.open("live")
    eventually(lambda: client.batch(identity).request_counts.completed == 1)
    assert live("s") == "s"  # while the second request of the batch waits in the engine
    assert client.batch(identity).request_counts.completed == 1
    client.server.open("batch")
    assert client.ended(identity).request_counts.completed == 3


def test_a_cancelled_batch_keeps_its_replies(client: Client) -> None:
    import openai

    identity = client.create(lines("a", "<hold>", "c"))
    eventually(lambda: client.batch(identity).request_counts.completed == 1)
    eventually(lambda: client.server.seen()["begun"] == 2)
    assert client.api.batches.cancel(identity).status == "cancelling"
    batch = client.ended(identity)
    assert (batch.status, batch.request_counts.completed) == ("cancelled", 1)
    assert batch.cancelling_at <= batch.cancelled_at
    assert [*client.rows(batch.output_file_id)] == ["line-0"]
    eventually(lambda: client.server.seen()["in_engine"] == 0)
    with pytest.raises(openai.ConflictError, match="it is cancelled"):
        client.api.batches.cancel(identity)


@pytest.fixture
def service(engine: ScriptedEngine, tmp_path: Path) -> Service:
    return ready_service(EndpointConfig(model="scripted", max_body=4000, batch_store=str(tmp_path / "store")), engine)


@pytest.fixture
def http(service: Service) -> HttpClient:
    return http_client(service)


def store(service: Service, content: bytes) -> str:
    assert service.batches is not None
    return service.batches.store.add_file("input.jsonl", "batch", [content]).id


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x\n", "line 1: it is not valid JSON"),
        (lines("a") + b"\n[]", "line 2: it is a JSON array, not an object"),
        (lines("a").replace(b"line-0", b""), "line 1: 'custom_id' must be a text"),
        (lines("a") + b"\n" + lines("b"), "'custom_id' 'line-0' is on two lines"),
        (lines("a").replace(b"POST", b"GET"), "line 1: 'method' must be 'POST'"),
        (lines("a").replace(b"/v1/completions", b"/v1/other"), "line 1: 'url' must be the batch's endpoint"),
        (lines("a").replace(b'"body"', b'"bdoy"'), "line 1: 'bdoy' is not known"),
        (b"{}\n" * 50_001, "the file has more than 50,000 lines"),
        (b"\n \n", "the file has no lines"),
    ],
)
def test_bad_lines_are_named(http: HttpClient, service: Service, content: bytes, said: str) -> None:
    body = {"input_file_id": store(service, content), "endpoint": "/v1/completions", "completion_window": "24h"}
    reply = http.post("/v1/batches", json=body)
    error = reply.get_json()["error"]
    assert (reply.status_code, error["param"]) == (400, "input_file_id")
    assert said in error["message"]


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"endpoint": "/v1/other"}, 400, "endpoint"),
        ({"endpoint": 1}, 400, "endpoint"),
        ({"completion_window": "1h"}, 400, "completion_window"),
        ({"input_file_id": None}, 400, "input_file_id"),
        ({"input_file_id": "file-" + "0" * 32}, 404, "input_file_id"),
        ({"input_file_id": "../../etc/passwd"}, 404, "input_file_id"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 3600}}, 400, "output_expires_after"),
        ({"metadata": {"a": 1}}, 400, "metadata"),
        ({"metadata": {"a" * 65: "b"}}, 400, "metadata"),
        ({"metadata": {str(number): "" for number in range(17)}}, 400, "metadata"),
    ],
)
def test_bad_fields_are_named(
    http: HttpClient, service: Service, changes: dict[str, Any], status: int, param: str
) -> None:
    body = {"input_file_id": store(service, lines("a")), "endpoint": "/v1/completions", "completion_window": "24h"}
    reply = http.post("/v1/batches", json=body | changes)
    error = reply.get_json()["error"]
    assert (reply.status_code, error["param"].split("[")[0]) == (status, param)


def part(name: str, value: str) -> str:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


FILE = part("file", "x").replace('"file"', '"file"; filename="f"')


@pytest.mark.parametrize(
    ("body", "kind", "status", "param"),
    [
        (part("purpose", "batch"), FORM, 400, "file"),
        (FILE, FORM, 400, "purpose"),
        (FILE + part("purpose", "vision"), FORM, 400, "purpose"),
        (FILE.replace("x", " ") + part("purpose", "batch"), FORM, 400, "file"),
        (FILE + part("purpose", "batch") + part("expires_after[seconds]", "3600"), FORM, 400, "expires_after"),
        ("no form", FORM, 400, "file"),
        ("{}", "application/json", 415, "Content-Type"),
        ("x" * 4001, FORM, 413, None),
    ],
)
def test_bad_uploads_are_named(http: HttpClient, body: str, kind: str, status: int, param: str | None) -> None:
    reply = http.post("/v1/files", data=(body + "--b--\r\n").encode(), content_type=kind)
    assert (reply.status_code, reply.get_json()["error"]["param"]) == (status, param)


def test_a_form_above_flasks_limits_is_not_called_too_large_a_body(http: HttpClient, service: Service) -> None:
    service.bodies.limit = service.bodies.largest = 1 << 20
    for body in (part("a", "") * 1001, part("a", "a" * 500_001)):
        reply = http.post("/v1/files", data=(body + "--b--\r\n").encode(), content_type=FORM)
        assert (reply.status_code, reply.get_json()["error"]["code"]) == (400, "invalid_body")


@pytest.mark.parametrize(
    "path", ["/v1/files/x", "/v1/files/x/content", "/v1/batches/x", "/v1/files/" + "file-" + "0" * 32]
)
def test_what_is_not_there_is_a_404(http: HttpClient, path: str) -> None:
    reply = http.get(path)
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (404, "not_found")


def test_a_file_whose_content_is_gone_is_a_404(http: HttpClient, service: Service, tmp_path: Path) -> None:
    identity = store(service, lines("a"))
    (tmp_path / "store" / "files" / identity / "content").unlink()
    reply = http.get(f"/v1/files/{identity}/content")
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (404, "not_found")
    assert str(tmp_path) not in reply.text


def test_without_an_engine_of_the_start_no_batch_is_made(http: HttpClient, service: Service) -> None:
    service.engine = None
    start = partial(model_start.start, service.loop)
    service.models = ModelRegistry(service.config, service.lifecycle, service.admission, lambda: None, start=start)
    body = {"input_file_id": store(service, lines("a")), "endpoint": "/v1/completions", "completion_window": "24h"}
    reply = http.post("/v1/batches", json=body)
    assert (reply.status_code, reply.get_json()["error"]["code"]) == (404, "model_unnamed")


def test_a_list_of_files_has_those_of_one_purpose(http: HttpClient, service: Service) -> None:
    assert service.batches is not None
    inputs = sorted((store(service, lines("a")) for _ in range(2)), reverse=True)
    output = service.batches.store.add_file("output.jsonl", "batch_output", [b"a"]).id

    def page(query: str) -> tuple[list[str], bool]:
        found = http.get(f"/v1/files?{query}").get_json()
        return [file["id"] for file in found["data"]], found["has_more"]

    assert page("purpose=batch") == (inputs, False)
    assert page("purpose=batch&limit=1") == (inputs[:1], True)
    assert page(f"purpose=batch&limit=1&after={inputs[0]}") == (inputs[1:], False)
    assert page("limit=3") == (sorted([*inputs, output], reverse=True), False)
    assert page("purpose=other") == ([], False)


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "after=nothing", "order=up"])
def test_bad_pages_are_named(http: HttpClient, query: str) -> None:
    reply = http.get(f"/v1/batches?{query}")
    assert (reply.status_code, reply.get_json()["error"]["param"]) == (400, query.split("=")[0])


def test_without_the_setting_they_are_off(http: HttpClient, service: Service) -> None:
    service.batches = None
    for method, path in (
        ("GET", "/v1/files"),
        ("POST", "/v1/files"),
        ("GET", "/v1/batches/x"),
        ("POST", "/v1/batches"),
    ):
        reply = http.open(path, method=method)
        assert reply.status_code == 404
        assert "ENDPOINT_BATCH_STORE" in reply.get_json()["error"]["message"]
