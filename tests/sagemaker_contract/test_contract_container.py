"""What SageMaker sends to the container and expects of it, typed as SageMaker's own documents spell it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import create_autospec

import pytest
from werkzeug.test import Client, TestResponse

from container.service import Service
from handler.config.config_findings import config_findings
from handler.config.loading.config_loader import load
from handler.custom_code.code_contract import CodeReply
from handler.engine.adapters.adapter_errors import AdapterNotFound
from handler.engine.adapters.adapters import Adapter, Adapters
from handler.errors import SettingError
from tests.container.http_client import http_client
from tests.container.scripted_engine import SLOTS, ScriptedEngine

SESSIONS = {"SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "true"}
TRANSFORM = {"SAGEMAKER_BATCH": "true"}
ASYNC = {"ENDPOINT_ASYNCHRONOUS": "true"}
JSON, LINES = {"Content-Type": "application/json"}, {"Content-Type": "application/jsonlines"}
BODY, LINE = '{"prompt": "a"}', '{"prompt": "b", "stream": true}'
NEW = "X-Amzn-SageMaker-New-Session-Id"


@dataclass(frozen=True)
class Sent:
    """One request.

    :ivar environ: variables of the container.
    :ivar status, headers, text: of the reply. Headers and text are regular expressions; None: there is no such header.
    """

    request: str
    body: str = ""
    sent: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str | None] = field(default_factory=dict)
    text: str = ""


def post(body: str = BODY, sent: Mapping[str, str] | None = None, **more: Any) -> Sent:
    return Sent(request="POST /invocations", body=body, sent={**JSON, **(sent or {})}, **more)


EXCHANGES = {
    "ping": Sent("GET /ping", text=r"\A\Z"),
    "invocations": Sent("POST /invocations", BODY, JSON, text='"text":"a"'),
    "any header": post(sent={"X-Amzn-SageMaker-Of-Tomorrow": "x"}),
    "attributes": post(
        sent={"X-Amzn-SageMaker-Custom-Attributes": "c000b4f9"},
        headers={"X-Amzn-SageMaker-Custom-Attributes": "c000b4f9"},
    ),
    "longest attributes": post(
        sent={"X-Amzn-SageMaker-Custom-Attributes": "~" * 1024},
        headers={"X-Amzn-SageMaker-Custom-Attributes": "~{1024}"},
    ),
    "inference id": post(sent={"X-Amzn-SageMaker-Inference-Id": "8d6-1"}),
    "target variant": post(sent={"X-Amzn-SageMaker-Target-Variant": "AllTraffic"}),
    "inference component": post(sent={"X-Amzn-SageMaker-Inference-Component": "component-1"}),
    "prefix-aware id": post(sent={"X-Amzn-SageMaker-Prefix-Aware-Id": "tenant-1"}),
    "target container": post(sent={"X-Amzn-SageMaker-Target-Container-Hostname": "firstContainer"}),
    "explanations": post(sent={"X-Amzn-SageMaker-Enable-Explanations": "`true`"}),
    "timeout": post(sent={"X-Amzn-SageMaker-InvocationTimeoutSeconds": "3600"}),
    "timeout too long": post(sent={"X-Amzn-SageMaker-InvocationTimeoutSeconds": "3601"}, status=400),
    "accept": post(sent={"Accept": "application/json"}, headers={"Content-Type": "application/json"}),
    "stream": post(
        '{"prompt": "a", "stream": true}', headers={"Content-Type": "text/event-stream", "Content-Length": None}
    ),
    "openai path": Sent(
        "POST /v1/chat/completions",
        '{"model": "", "messages": [{"role": "user", "content": "a"}], "stream": true}',
        JSON,
        headers={"Content-Type": "text/event-stream"},
    ),
    "metrics": Sent("GET /metrics", text="endpoint_requests"),
    "no content type": Sent("POST /invocations", BODY, status=415),
    "bidirectional without upgrade": Sent("GET /invocations-bidirectional-stream", status=426),
    # Sessions.
    "new session": post(
        '{"requestType":"NEW_SESSION"}',
        {"X-Amzn-SageMaker-Session-Id": "NEW_SESSION"},
        environ=SESSIONS,
        headers={
            "X-Amzn-SageMaker-New-Session-Id": r"[a-zA-Z0-9](-*[a-zA-Z0-9])*;\sExpires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
        },
    ),
    "new session by header": post(
        sent={"X-Amzn-SageMaker-Session-Id": "NEW_SESSION"}, environ=SESSIONS, headers={NEW: "; Expires="}
    ),
    "unknown session": post(sent={"X-Amzn-SageMaker-Session-Id": "abcd"}, environ=SESSIONS, status=400),
    "close of an unknown session": post(
        '{"requestType":"CLOSE"}', {"X-Amzn-SageMaker-Session-Id": "abcd"}, environ=SESSIONS, status=400
    ),
    "sessions are off": post('{"requestType":"NEW_SESSION"}', status=400),
    "unknown request type": post('{"requestType":"RENEW"}', environ=SESSIONS, status=400),
    "more than a request type": post('{"requestType":"NEW_SESSION","x":1}', environ=SESSIONS, status=400),
    # Adapters.
    "adapter": post(sent={"X-Amzn-SageMaker-Adapter-Identifier": "scripted"}),
    "unknown adapter": post(sent={"X-Amzn-SageMaker-Adapter-Identifier": "other"}, status=404),
    "adapter's alias": post(
        sent={"X-Amzn-SageMaker-Adapter-Identifier": "scripted", "X-Amzn-SageMaker-Adapter-Alias": "poems"}
    ),
    "register": Sent(
        "POST /adapters",
        '{"name": "ic-1", "src": "/opt/ml/a", "preload": true, "pin": false}',
        JSON,
        text="Adapter ic-1 registered",
    ),
    "register by alias": Sent(
        "POST /adapters",
        '{"name": "ic-1", "src": "/opt/ml/a"}',
        {**JSON, "X-Amzn-SageMaker-Adapter-Alias": "poems"},
        text="Adapter poems registered",
    ),
    "update by alias": Sent(
        "POST /adapters/ic-1",
        '{"src": "/b"}',
        {**JSON, "X-Amzn-SageMaker-Adapter-Alias": "poems"},
        text="Adapter poems updated",
    ),
    "unregister by alias": Sent(
        "DELETE /adapters/ic-1", "", {"X-Amzn-SageMaker-Adapter-Alias": "poems"}, text="Adapter poems unregistered"
    ),
    "register without a name": Sent("POST /adapters", '{"name": "", "src": "/a"}', JSON, status=400),
    # Multi-model endpoints.
    "list models": Sent("GET /models", environ={"SAGEMAKER_MULTI_MODEL": "true"}, text=r'"models":\[\]'),
    "no model": Sent("GET /models/8df0", environ={"SAGEMAKER_MULTI_MODEL": "true"}, status=404),
    "unload no model": Sent("DELETE /models/8df0", environ={"SAGEMAKER_MULTI_MODEL": "true"}, status=404),
    "invoke no model": Sent("POST /models/8df0/invoke", BODY, JSON, {"SAGEMAKER_MULTI_MODEL": "true"}, 404),
    "encoded name": Sent("POST /models/a%20b/invoke", BODY, JSON, {"SAGEMAKER_MULTI_MODEL": "true"}, 404),
    # Batch transform.
    "parameters": Sent(
        "GET /execution-parameters",
        environ=TRANSFORM,
        text=rf'\A{{"MaxConcurrentTransforms":{SLOTS},"BatchStrategy":"SINGLE_RECORD","MaxPayloadInMB":6}}\Z',
    ),
    "parameters of the job": Sent(
        "GET /execution-parameters",
        environ={
            **TRANSFORM,
            "SAGEMAKER_BATCH_STRATEGY": "MULTI_RECORD",
            "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "8",
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": "6",
        },
        text='{"MaxConcurrentTransforms":8,"BatchStrategy":"MULTI_RECORD","MaxPayloadInMB":6}',
    ),
    "parameters of 0": Sent(
        "GET /execution-parameters",
        environ={**TRANSFORM, "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "0", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"},
        text=rf'"MaxConcurrentTransforms":{SLOTS},.*"MaxPayloadInMB":6',
    ),
    "line of a transform": post(BODY + "\n", LINES, environ=TRANSFORM, text=r'"text":"a"[^\n]*\Z'),
    "lines of a transform": post(f"{BODY}\n{BODY}\n", LINES, environ=TRANSFORM, text=r"\A[^\n]+\n[^\n]+\Z"),
    "lines of an endpoint": post(f"{BODY}\n{BODY}\n", LINES, text=r"\A[^\n]+\n[^\n]+\n\Z"),
    "an empty line alone": post("\n", LINES, environ=TRANSFORM, text=r'\A\{"error":[^\n]+\Z'),
    "an empty line between": post(
        f"{BODY}\n\n{BODY}\n", LINES, environ=TRANSFORM, text=r'\A[^\n]+\n\{"error":[^\n]+\n[^\n]+\Z'
    ),
    "a bad record": post(
        f'{{"prompt":\n{BODY}\n', LINES, environ=TRANSFORM, text=r'\A\{"error":[^\n]+\n[^\n]+"text":"a"'
    ),
    "lines without a type": Sent(
        "POST /invocations", f"{BODY}\n{BODY}\n", environ=TRANSFORM, headers={"Content-Type": "application/jsonlines"}
    ),
    "a length for a transform": post(LINE, environ=TRANSFORM, headers={"Content-Length": r"\d+"}),
    # Asynchronous inference.
    "a length for asynchronous": post(
        LINE, environ=ASYNC, headers={"Content-Length": r"\d+", "Transfer-Encoding": None}
    ),
}


class ScriptedCode:
    """The owner's code: replies with a header of 4,096 bytes."""

    may_decline: ClassVar[bool] = False
    manages_sessions: ClassVar[bool] = False

    def answers(self, method: str, path: str) -> bool:
        return path == "/invocations"

    def invoke(self, _: object) -> CodeReply:
        return CodeReply(b"{}", "application/json", 200, {"X-Of-The-Code": "x" * 4096})


def not_loaded(name: str) -> None:
    raise AdapterNotFound(name)


def service(engine: ScriptedEngine, environ: Mapping[str, str]) -> Service:
    engine.adapters = create_autospec(Adapters, instance=True, spec_set=True)
    engine.adapters.load.return_value = Adapter("ic-1", "/opt/ml/a", False, 1, Path("/"), None)
    engine.adapters.unload.side_effect = lambda name: None if name == "ic-1" else not_loaded(name)
    service = Service.of(load({"ENDPOINT_MODEL": "scripted", **environ}), loop=engine.loop)
    service.engine = engine  # type: ignore[assignment]  # a stand-in
    service.lifecycle.ready()
    return service


def exchanged(client: Client, sent: Sent) -> TestResponse:
    method, _, path = sent.request.partition(" ")
    return client.open(path, method=method, data=sent.body or None, headers=dict(sent.sent), buffered=True)


@pytest.mark.parametrize("name", EXCHANGES)
def test_exchange(engine: ScriptedEngine, name: str) -> None:
    sent = EXCHANGES[name]
    reply = exchanged(http_client(service(engine, sent.environ)), sent)
    text = reply.get_data(as_text=True)
    assert reply.status_code == sent.status, text
    assert re.search(sent.text, text, re.DOTALL), text
    for header, value in sent.headers.items():
        found = reply.headers.get(header)
        assert found is None if value is None else re.search(value, found or ""), (header, found)


@pytest.mark.parametrize(("environ", "status"), [(ASYNC, 500), ({}, 200)])
def test_reply_headers_above_4096_bytes_fail_on_an_asynchronous_endpoint(
    engine: ScriptedEngine, environ: Mapping[str, str], status: int
) -> None:
    own = service(engine, environ)
    own.custom_code = ScriptedCode()
    reply = exchanged(http_client(own), post())
    assert reply.status_code == status
    if status == 500:
        assert json.loads(reply.data)["error"]["code"] == "reply_headers_too_long"
        assert "X-Of-The-Code" in json.loads(reply.data)["error"]["message"]


# One variable of the container's environment, and a field with the value that it has then.
VARIABLES: Mapping[str, tuple[str, str, object]] = {
    "port": ("SAGEMAKER_BIND_TO_PORT=8081", "port", 8081),
    "default port": ("", "port", 8080),
    "range of ports": ("SAGEMAKER_SAFE_PORT_RANGE=8081-8090", "safe_port_range", "8081-8090"),
    "default model": ("", "model", "/opt/ml/model"),
    "multi-model": ("SAGEMAKER_MULTI_MODEL=true", "multi_model", True),
    "batch": ("SAGEMAKER_BATCH=true", "batch_transform", True),
    "batch of the SDK": ("SAGEMAKER_BATCH=True", "batch_transform", True),
    "single record": ("SAGEMAKER_BATCH_STRATEGY=SINGLE_RECORD", "batch_strategy", "SINGLE_RECORD"),
    "multi record": ("SAGEMAKER_BATCH_STRATEGY=MULTI_RECORD", "batch_strategy", "MULTI_RECORD"),
    "single record of the API": ("SAGEMAKER_BATCH_STRATEGY=SingleRecord", "batch_strategy", "SINGLE_RECORD"),
    "multi record of the API": ("SAGEMAKER_BATCH_STRATEGY=MultiRecord", "batch_strategy", "MULTI_RECORD"),
    "payload": ("SAGEMAKER_MAX_PAYLOAD_IN_MB=100", "max_payload_mb", 100),
    "payload of 0": ("SAGEMAKER_MAX_PAYLOAD_IN_MB=0", "max_payload_mb", 0),
    "concurrent": ("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS=8", "max_concurrent_transforms", 8),
    "concurrent of 0": ("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS=0", "max_concurrent_transforms", 0),
    "sessions": ("SAGEMAKER_ENABLE_STATEFUL_SESSIONS=true", "enable_sessions", True),
    "life of a session": ("SAGEMAKER_SESSIONS_EXPIRATION=600", "session_expiration", 600.0),
    "default life of a session": ("", "session_expiration", 1200.0),
    "workers": ("SAGEMAKER_MODEL_SERVER_WORKERS=1", "unused", {}),
    "hub id": ("HF_MODEL_ID=/opt/ml/model", "model", "/opt/ml/model"),
    "server timeout": ("ENDPOINT_SERVER_TIMEOUT=3600", "deadline", None),
    "toolkit timeout": ("SAGEMAKER_MODEL_SERVER_TIMEOUT=3600", "deadline", None),
    "degree": ("SM_VLLM_TENSOR_PARALLEL_SIZE=8", "tensor_parallel_size", 8),
    "length": ("SM_VLLM_MAX_MODEL_LEN=8192", "max_model_len", 8192),
}
# What JumpStart's definitions set (sagemaker-python-sdk, jumpstart_specs and hub_content_document.json).
JUMPSTART = {
    "SAGEMAKER_PROGRAM": "inference.py",
    "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
    "SAGEMAKER_CONTAINER_LOG_LEVEL": "20",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT": "3600",
    "ENDPOINT_SERVER_TIMEOUT": "3600",
    "MODEL_CACHE_ROOT": "/opt/ml/model",
    "SAGEMAKER_ENV": "1",
    "HF_MODEL_ID": "/opt/ml/model",
    "SAGEMAKER_MODEL_SERVER_WORKERS": "1",
    "OPTION_ENFORCE_EAGER": "true",
    "OPTION_GPU_MEMORY_UTILIZATION": "0.85",
    "TIKTOKEN_ENCODINGS_BASE": "/opt/ml/model",
    "SM_VLLM_MAX_MODEL_LEN": "8192",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_variable(name: str) -> None:
    typed, field_name, value = VARIABLES[name]
    variable, _, text = typed.partition("=")
    assert getattr(load({variable: text} if variable else {}), field_name) == value


def test_jumpstarts_environment_starts_and_what_has_no_effect_is_said() -> None:
    said = {finding.setting for finding in config_findings(load(JUMPSTART))}
    assert "ENDPOINT_SERVER_TIMEOUT" in said


REFUSED: Mapping[str, Callable[[], object]] = {
    "a strategy that is none": lambda: load({"SAGEMAKER_BATCH_STRATEGY": "SINGLE"}),
    "a payload above 100": lambda: load({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "101"}),
    "a negative number": lambda: load({"SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "-1"}),
    "a name of ours": lambda: load({"ENDPOINT_SERVER_TIMEOUTS": "1"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(SettingError):
        REFUSED[name]()
