"""Reads the body of a request to the engine: checks its media type, and decodes a form with an audio file.

Forms (multipart/form-data) are read by werkzeug's parser.
"""

from __future__ import annotations

from collections.abc import Collection
from io import BytesIO
from typing import Any, Final

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import FormDataParser
from werkzeug.http import parse_options_header
from werkzeug.wrappers import Request

from handler.errors import InvalidBody, InvalidField, MissingField, UnsupportedMediaType

FORM: Final = "multipart/form-data"
FILE: Final = "file"
# What OpenAI's clients append to the name of a list.
LIST: Final = "[]"
MAX_PARTS: Final = 64
# All fields together, in bytes. A file does not count.
MAX_FIELDS: Final = 256 * 1024


def require_json(request: Request, media_type: str | None = None, *, accepted: Collection[str] = ()) -> None:
    """Checks that a body is declared as JSON in UTF-8. A missing Content-Type is an error as well.

    :param media_type: the body's, if the request need not declare it.
    :param accepted: media types that are accepted besides JSON's.
    :raises UnsupportedMediaType, InvalidBody: it is not.
    """
    media_type = request.mimetype if media_type is None else media_type
    if media_type != "application/json" and not media_type.endswith("+json") and media_type not in accepted:
        raise UnsupportedMediaType(request.headers.get("Content-Type", ""))
    charset = request.mimetype_params.get("charset", "utf-8").lower()
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise InvalidBody(f"its charset is '{charset[:40]}'")


def decode_form(content_type: str, body: bytes) -> dict[str, Any]:
    """The fields of a form as texts, and its file as bytes. The file's name is not used.

    :raises UnsupportedMediaType: the Content-Type does not say where a part ends.
    :raises InvalidBody: it is no form, has more than `MAX_PARTS` parts, or more than `MAX_FIELDS` bytes of fields.
    :raises ClientError: it has no file, two of them, or a field twice. The error names the field.
    """
    kind, options = parse_options_header(content_type)
    if not options.get("boundary"):
        raise UnsupportedMediaType(content_type, f"application/json, or {FORM} with its boundary")
    parser = FormDataParser(_in_memory, max_form_memory_size=MAX_FIELDS, max_form_parts=MAX_PARTS, silent=False)
    try:
        _, form, files = parser.parse(BytesIO(body), kind, len(body), options)
    except RequestEntityTooLarge:
        limits = f"it may have {MAX_PARTS} parts, and {MAX_FIELDS:,} bytes of fields beside the file"
        raise InvalidBody(limits, "a smaller form") from None
    except ValueError as error:
        raise InvalidBody(f"it is not a valid form ({error})", f"a whole {FORM}") from None
    names = [name for name, _ in (*form.items(multi=True), *files.items(multi=True))]
    if None in names:
        raise InvalidBody("a part of the form has no name", f"a whole {FORM}")
    twice = next((name for name in names if names.count(name) > 1 and not name.endswith(LIST)), None)
    if twice is not None:
        raise InvalidField(twice[:100], "it is there twice")
    other = next((name for name in files if name != FILE), None)
    if other is not None:
        raise InvalidField(other[:100], f"it is a file; only '{FILE}' may be one")
    if FILE in form:
        raise InvalidField(FILE, "it is a text: send it as a file, with a file name")
    if FILE not in files:
        raise MissingField(FILE, "send the audio as a file of the form")
    fields: dict[str, Any] = {name: values if name.endswith(LIST) else values[0] for name, values in form.lists()}
    return {**{name.removesuffix(LIST): value for name, value in fields.items()}, FILE: files[FILE].read()}


def _in_memory(*_: object, **__: object) -> BytesIO:
    """Where a file of the form goes. By default a large one goes to a disk."""
    return BytesIO()
