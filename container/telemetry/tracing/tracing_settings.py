"""Reads OpenTelemetry's variables: whether traces are wanted, and whether they can be sent.

Source: OpenTelemetry's specification, "OpenTelemetry Protocol Exporter" and "Environment Variable Specification".
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from typing import Final

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


def wanted(environ: Mapping[str, str]) -> str | None:
    """The name of the variable that switches traces on; None: they are off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    return next((name for name in ENDPOINTS if environ.get(name, "").strip()), None)


def protocol(environ: Mapping[str, str]) -> str:
    return next((environ[name].strip().lower() for name in PROTOCOLS if environ.get(name, "").strip()), HTTP)


def check(environ: MutableMapping[str, str], *, isolated: bool) -> None:
    """Checks that traces can be sent. Sets the protocol for vLLM's own exporter, which has another default.

    :param isolated: the container has no network.
    :raises SettingError: naming the variable.
    """
    name = wanted(environ)
    if name is None:
        return
    exporter_protocol = protocol(environ)
    if exporter_protocol not in EXPORTERS:
        problem = f"there is no exporter for '{exporter_protocol[:40]}'"
        raise SettingError(PROTOCOLS[0], problem, f"Give {HTTP} or {GRPC}.")
    if not _installed(EXPORTERS[exporter_protocol]):
        package = EXPORTERS[exporter_protocol].replace(".", "-")
        raise SettingError(name, f"{package} is not installed", f"Install opentelemetry-sdk and {package}.")
    if isolated and url_parts(environ[name]).hostname not in LOOPBACK:
        raise SettingError(name, "the endpoint has no network", "Send traces to this machine, or unset the variable.")
    environ.setdefault(PROTOCOLS[0], exporter_protocol)


def _installed(module: str) -> bool:
    try:
        return find_spec("opentelemetry.sdk") is not None and find_spec(module) is not None
    except ModuleNotFoundError:
        return False
