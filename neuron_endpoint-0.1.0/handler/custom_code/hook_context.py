"""The context of a hook: the request's headers, and the status and headers of the reply. One object for each request.

It has the methods of multi-model-server's Context (awslabs/multi-model-server, mms/context.py), which hooks for
SageMaker's toolkits call. It has one request, with the index 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handler.custom_code.engine_model import EngineModel


@dataclass(slots=True)
class RequestProcessor:
    """The request's headers. Names are compared without case."""

    headers: Mapping[str, str]

    def get_request_properties(self) -> dict[str, str]:
        return dict(self.headers)

    def get_request_property(self, key: str) -> str | None:
        return next((value for name, value in self.headers.items() if name.lower() == key.lower()), None)


@dataclass(slots=True)
class HookContext:
    """The context of one request.

    :ivar engine: the engine of this endpoint, for a `model_fn` of the custom code. None if there is no engine.
    :ivar system_properties: `model_dir`, `batch_size`, and `gpu_id`, which is None.
    """

    model_dir: str
    engine: EngineModel | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    status: int = 200
    phrase: str = ""
    response_headers: dict[str, str] = field(default_factory=dict)

    @property
    def system_properties(self) -> dict[str, Any]:
        return {"model_dir": self.model_dir, "gpu_id": None, "batch_size": 1}

    @property
    def request_processor(self) -> list[RequestProcessor]:
        return [RequestProcessor(self.headers)]

    @property
    def request_ids(self) -> dict[int, str]:
        return {0: self.request_id}

    def get_request_id(self, idx: int = 0) -> str:
        return self.request_id

    def get_request_header(self, idx: int, key: str) -> str | None:
        return RequestProcessor(self.headers).get_request_property(key)

    def get_all_request_header(self, idx: int = 0) -> dict[str, str]:
        return dict(self.headers)

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        self.status, self.phrase = int(code), phrase

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        self.set_response_status(code, phrase)

    def get_response_status(self, idx: int = 0) -> tuple[int, str]:
        return self.status, self.phrase

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        self.response_headers[key] = str(value)

    def get_response_headers(self, idx: int = 0) -> dict[str, str]:
        return self.response_headers

    def set_response_content_type(self, idx: int, value: str) -> None:
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int = 0) -> str | None:
        return next((value for key, value in self.response_headers.items() if key.lower() == "content-type"), None)
