"""Whether traces are wanted, by OpenTelemetry's own variables, and whether they can be had.

Source: OpenTelemetry's specification, "OpenTelemetry Protocol Exporter" and "Environment Variable Specification".
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from handler.errors import SettingError

# The first that is set decides; the second is the address of every signal, below which traces have a path of their own.
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP, GRPC = "http/protobuf", "grpc"
EXPORTERS: Final[Mapping[str, str]] = {
    HTTP: "opentelemetry.exporter.otlp.proto.http",
    GRPC: "opentelemetry.exporter.otlp.proto.grpc",
}
HERE: Final = frozenset(("localhost", "127.0.0.1", "::1"))


def wanted(environ: Mapping[str, str]) -> str | None:
    """The name of the variable that asks for traces; None: they are off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    return next((name for name in ENDPOINTS if environ.get(name, "").strip()), None)


def protocol(environ: Mapping[str, str]) -> str:
    return next((environ[name].strip().lower() for name in PROTOCOLS if environ.get(name, "").strip()), HTTP)


def check(environ: MutableMapping[str, str], *, isolated: bool) -> None:
    """Sees that what is asked for can be had; vLLM's own exporter, which has another default, is told the protocol.

    :param isolated: the container has no network.
    :raises SettingError: naming the variable.
    """
    name = wanted(environ)
    if name is None:
        return
    asked = protocol(environ)
    if asked not in EXPORTERS:
        problem = f"there is no exporter for '{asked[:40]}'"
        raise SettingError(PROTOCOLS[0], problem, f"Give {HTTP} or {GRPC}.")
    if not _installed(EXPORTERS[asked]):
        package = EXPORTERS[asked].replace(".", "-")
        raise SettingError(name, f"{package} is not installed", f"Install opentelemetry-sdk and {package}.")
    if isolated and urlsplit(environ[name]).hostname not in HERE:
        raise SettingError(name, "the endpoint has no network", "Send traces to this machine, or leave it out.")
    environ.setdefault(PROTOCOLS[0], asked)


def _installed(module: str) -> bool:
    try:
        return find_spec("opentelemetry.sdk") is not None and find_spec(module) is not None
    except ModuleNotFoundError:
        return False
