"""The options of a request to /invocations that are not in its body: schema, framing, formatter.

They come from headers and settings. All functions are pure. docs/requests.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from handler.errors import InvalidField
from handler.schemas.reply import JSON_LINES, LINE_TYPES, SSE
from handler.schemas.tgi_lmi.inputs_fields import LMI, TGI

CHAT: Final = "chat"
COMPLETION: Final = "completion"
# The values of the custom attribute `schema`.
SCHEMAS: Final = (CHAT, COMPLETION, TGI, LMI)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of a request that come from its headers and the endpoint's settings.

    :param accept: the media types of `Accept`, the preferred one first.
    :param attributes: SageMaker's custom attributes, parsed.
    :param inputs_schema: the default schema of `inputs` bodies: `lmi` or `tgi`.
    :param output_formatter: LMI's setting: `json`, `jsonlines` or `sse`. None leaves it to the request.
    """

    accept: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    inputs_schema: str = LMI
    output_formatter: str | None = None

    @property
    def schema(self) -> str | None:
        """The custom attribute `schema`. :raises InvalidField: there is no such schema."""
        name = self.attributes.get("schema")
        if name is None:
            return None
        if name.strip().lower() not in SCHEMAS:
            raise InvalidField("X-Amzn-SageMaker-Custom-Attributes", f"schema= must be one of {', '.join(SCHEMAS)}")
        return name.strip().lower()

    @property
    def tgi(self) -> bool:
        """Whether an `inputs` body is TGI's rather than LMI's."""
        return (self.schema or self.inputs_schema) == TGI

    def framing(self, schema: str, formatter: str | None = None) -> str:
        """The media type of a stream: the formatter's, else the first in `Accept`, else the schema's own.

        :param formatter: the one in the body, which has precedence over the setting.
        """
        formatter = formatter or self.output_formatter
        if formatter in ("jsonlines", "sse"):
            return JSON_LINES if formatter == "jsonlines" else SSE
        for kind in self.accept:
            if kind == SSE:
                return SSE
            if kind in LINE_TYPES:
                return JSON_LINES
        return JSON_LINES if schema == LMI else SSE
