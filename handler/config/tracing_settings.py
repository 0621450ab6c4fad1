"""Reads OpenTelemetry's variables: whether traces are wanted, and whether they can be sent.

Source: OpenTelemetry's specification, "OpenTelemetry Protocol Exporter" and "Environment Variable Specification".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.util import find_spec
from typing import Final
from urllib.parse import unquote

from handler.config.problems import SettingErrors
from handler.config.secret_values import MASK
from handler.errors import SettingError
from handler.urls import url_parts

# The first that is set decides. The second is for all signals; traces have a path of their own below it.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP, GRPC = "http/protobuf", "grpc"
EXPORTERS: Final[Mapping[str, str]] = {
    HTTP: "opentelemetry.exporter.otlp.proto.http",
    GRPC: "opentelemetry.exporter.otlp.proto.grpc",
}
LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
# The library logs a header that it cannot read, with its API key (opentelemetry/util/re.py, whose form this is).
HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
HEADER: Final = re.compile(r"""[ \t]*[!#$%&'*+\-.0-9A-Z^_`a-z|~]+[ \t]*=[ !#-+\--:<-\[\]-~]*""")
QUEUE, BATCH = "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
DEFAULT_QUEUE, DEFAULT_BATCH = "2048", "512"
COUNT, LIMIT, SECONDS, GZIP = (
    "0*[1-9][0-9]{0,17}",
    "[0-9]{1,18}",
    r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}",
    "(?i:gzip)",
)
FORM_NAMES: Final = {
    COUNT: "a whole number above 0",
    LIMIT: "a whole number",
    SECONDS: "a number of seconds",
    GZIP: "gzip",
}
# Values of another form end the library's set-up (opentelemetry-sdk 1.45, sdk/trace; and the exporter over gRPC).
FORMS: Final[Mapping[str, str]] = {
    QUEUE: COUNT,
    BATCH: COUNT,
    "OTEL_BSP_SCHEDULE_DELAY": COUNT,
    "OTEL_ATTRIBUTE_COUNT_LIMIT": LIMIT,
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": LIMIT,
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": LIMIT,
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": LIMIT,
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": LIMIT,
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": LIMIT,
    "OTEL_SPAN_EVENT_COUNT_LIMIT": LIMIT,
    "OTEL_SPAN_LINK_COUNT_LIMIT": LIMIT,
}
GRPC_FORMS: Final[Mapping[str, str]] = {
    "OTEL_EXPORTER_OTLP_TIMEOUT": SECONDS,
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": SECONDS,
    "OTEL_EXPORTER_OTLP_COMPRESSION": GZIP,
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": GZIP,
}


def enabled_by(environ: Mapping[str, str]) -> str | None:
    """The name of the variable that switches traces on; None: they are off."""
    return None if _disabled(environ) else _given(ENDPOINTS, environ)


def protocol(environ: Mapping[str, str]) -> str:
    name = _given(PROTOCOLS, environ)
    return HTTP if name is None else environ[name].strip().lower()


def unreachable(environ: Mapping[str, str]) -> str | None:
    """The name of the variable with a collector that a container without a network does not reach."""
    name = enabled_by(environ)
    return None if name is None or is_local(environ[name]) else name


def is_local(collector: str) -> bool:
    """Whether a collector is on this machine. An exporter over gRPC takes an address without a scheme."""
    return url_parts(collector if "://" in collector else f"//{collector}").hostname in LOOPBACK


def problems(environ: Mapping[str, str], *, isolated: bool) -> Iterator[SettingError]:
    """What the start refuses, on any machine.

    :param isolated: the container has no network.
    """
    for header in () if _disabled(environ) else HEADERS:  # vLLM's own exporter reads them, too
        parts = [part for part in environ.get(header, "").split(",") if part.strip()]
        if not all(HEADER.fullmatch(part) and unquote(part).isprintable() for part in parts):
            fix = "Give name=value, several with commas between them, URL-encoded: Authorization=Bearer%20..."
            yield SettingError(header, f"'{MASK}' is not a list of headers", fix)
    name = enabled_by(environ)
    if name is None:
        return
    if (exporter_protocol := protocol(environ)) not in EXPORTERS:
        problem = f"there is no exporter for '{exporter_protocol[:40]}'"
        yield SettingError(_given(PROTOCOLS, environ) or PROTOCOLS[0], problem, f"Give {HTTP} or {GRPC}.")
    parts_of_url = url_parts(environ[name].strip())
    if exporter_protocol == HTTP and not (parts_of_url.scheme in ("http", "https") and parts_of_url.hostname):
        yield SettingError(name, "the collector's address is no URL", "Give http://host:4318, or https://.")
    forms, malformed = {**FORMS, **(GRPC_FORMS if exporter_protocol == GRPC else {})}, False
    for variable, form in forms.items():
        if (text := environ.get(variable, "").strip()) and not re.fullmatch(form, text):
            malformed = True
            problem = f"it must be {FORM_NAMES[form]}, not '{text[:40]}'"
            yield SettingError(variable, problem, "Correct it, or unset it.")
    queue, batch = environ.get(QUEUE, "").strip() or DEFAULT_QUEUE, environ.get(BATCH, "").strip() or DEFAULT_BATCH
    if not malformed and int(batch) > int(queue):
        problem = f"a batch of {batch} spans ({BATCH}) does not fit a queue of {queue}"
        yield SettingError(QUEUE, problem, f"Set {BATCH} to {queue} or less.")
    if isolated and unreachable(environ):
        yield SettingError(name, "the endpoint has no network", "Send traces to this machine, or unset the variable.")


def check(environ: MutableMapping[str, str], *, isolated: bool) -> None:
    """Checks that traces can be sent. Sets the protocol for vLLM's own exporter, which has another default.

    :param isolated: the container has no network.
    :raises SettingErrors: naming the variables.
    """
    for unset in [name for name in environ if name.startswith("OTEL_") and not environ[name].strip()]:
        del environ[unset]  # an empty variable counts as not set, but not for every part of the library
    if refused := list(problems(environ, isolated=isolated)):
        raise SettingErrors(refused)
    name = enabled_by(environ)
    if name is None:
        return
    exporter = EXPORTERS[protocol(environ)]
    if not _installed(exporter):
        package = exporter.replace(".", "-")
        raise SettingError(name, f"{package} is not installed", f"Install opentelemetry-sdk and {package}.")
    environ.setdefault(PROTOCOLS[0], protocol(environ))


def _disabled(environ: Mapping[str, str]) -> bool:
    off = {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"}
    return any(environ.get(name, "").strip().lower() == value for name, value in off.items())


def _given(names: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next((name for name in names if environ.get(name, "").strip()), None)


def _installed(module: str) -> bool:
    try:
        return find_spec("opentelemetry.sdk") is not None and find_spec(module) is not None
    except ModuleNotFoundError:
        return False
