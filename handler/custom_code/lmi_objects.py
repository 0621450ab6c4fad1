"""The classes Input and Output of `djl_python`, so that LMI's model.py runs unchanged.

They have the methods of the originals (djl-serving, engines/python/setup/djl_python/{inputs,outputs}.py) that a
`handle(inputs)` uses, without those for LMI's own server.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from types import ModuleType
from typing import Any

from handler.custom_code import array_limits
from handler.custom_code.engine_model import EngineModel


class LmiInput:
    """One request. LMI's own Input has no attribute `engine`: the engine of this endpoint, or None.

    With an LmiInput without content, `handle` loads its model.
    """

    def __init__(
        self, properties: dict[str, str] | None = None, body: bytes | None = None, engine: EngineModel | None = None
    ) -> None:
        self.properties = properties or {}
        self.engine = engine
        self.function_name = "handle"
        self._body = body

    def get_properties(self) -> dict[str, str]:
        return self.properties

    def get_property(self, key: str) -> str | None:
        return next((value for name, value in self.properties.items() if name.lower() == key.lower()), None)

    def get_function_name(self) -> str:
        return self.function_name

    def is_empty(self) -> bool:
        return self._body is None

    def is_batch(self) -> bool:
        return False

    def get_batch_size(self) -> int:
        return 1

    def get_batches(self) -> list[LmiInput]:
        return [self]

    def contains_key(self, key: str) -> bool:
        return key == "data" and self._body is not None

    def get_as_bytes(self, key: str | None = None) -> bytes | None:
        if key not in (None, "data"):
            raise KeyError(f"the request has no '{key}'")
        return self._body

    def get_as_string(self, key: str | None = None) -> str:
        return (self.get_as_bytes(key) or b"").decode()

    def get_as_json(self, key: str | None = None) -> Any:
        return json.loads(self.get_as_string(key))

    def get_as_csv(self, key: str | None = None) -> list[dict[str, Any]]:
        import csv

        return list(csv.DictReader(io.StringIO(self.get_as_string(key))))

    def get_as_npz(self, key: str | None = None) -> list[Any]:
        import numpy

        body = self.get_as_bytes(key) or b""
        array_limits.check_npz(body)
        archive = numpy.load(io.BytesIO(body), allow_pickle=False)
        return [archive[name] for name in archive.files]


class LmiOutput:
    """One reply. `stream_content` is an iterator over the pieces of a stream, or None."""

    def __init__(self, code: int = 200, message: str = "OK") -> None:
        self.code = code
        self.message = message
        self.properties: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.stream_content: Any = None
        self.stream_output_formatter: Callable[[Any], Any] | None = None
        self._finalize: tuple[Callable[..., Any], tuple[Any, ...]] | None = None

    def set_code(self, code: int) -> LmiOutput:
        self.code = code
        return self

    def set_message(self, message: str) -> LmiOutput:
        self.message = message
        return self

    def error(self, error: str, code: int = 424, message: str = "invoke handler failure") -> LmiOutput:
        self.code, self.message = code, message
        self.add_property("content-type", "application/json")
        return self.add_as_json({"code": code, "message": message, "error": error})

    def add_property(self, key: str, val: str) -> LmiOutput:
        self.properties[key] = val
        return self

    def get_properties(self) -> dict[str, str]:
        return self.properties

    def get_property(self, key: str) -> str | None:
        return self.properties.get(key)

    def add(self, value: Any, key: str | None = None, batch_index: int | None = None) -> LmiOutput:
        if isinstance(value, str):
            value = value.encode()
        self.parts.append(bytes(value) if isinstance(value, bytes | bytearray) else _json(value))
        return self

    def add_as_json(self, val: Any, key: str | None = None, batch_index: int | None = None) -> LmiOutput:
        self.parts.append(_json(val))
        return self

    def add_as_npz(self, np_list: Any, key: str | None = None, batch_index: int | None = None) -> LmiOutput:
        import numpy

        written = io.BytesIO()
        numpy.savez(written, *np_list)
        return self.add(written.getvalue())

    def add_stream_content(
        self, stream_content: Any, output_formatter: Callable[[Any], Any] | None = None
    ) -> LmiOutput:
        """Makes the reply a stream.

        :param output_formatter: formats each item. By default an item becomes a line `{"outputs": item}`, as in LMI.
        """
        self.stream_content = stream_content
        self.stream_output_formatter = output_formatter or _outputs
        return self

    def finalize(self, finalize_function: Callable[..., Any], *args: Any) -> LmiOutput:
        self._finalize = (finalize_function, args)
        return self

    def execute_finalize(self) -> Any:
        return None if self._finalize is None else self._finalize[0](*self._finalize[1])


def _outputs(item: Any) -> bytes:
    return _json({"outputs": item}) + b"\n"


def _json(value: Any) -> bytes:
    def default(item: Any) -> Any:
        if isinstance(item, datetime):  # as the original
            return str(item)
        if not hasattr(item, "tolist"):
            raise TypeError(f"'{type(item).__name__}' is no type of JSON")
        return item.tolist()

    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=default).encode()


def provide_djl_python() -> None:
    """Makes `from djl_python import Input, Output` give these classes. An installed package keeps its other modules."""
    for name in ("djl_python", "djl_python.inputs", "djl_python.outputs"):
        parent, _, child = name.rpartition(".")
        try:
            module = import_module(name)
        except ImportError:
            module = sys.modules[name] = ModuleType(name)
            module.__path__ = []
            if parent:
                setattr(sys.modules[parent], child, module)
        vars(module).update(Input=LmiInput, Output=LmiOutput)
