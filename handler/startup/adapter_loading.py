"""The adapters that an endpoint starts with, and where those come from that are loaded later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.network_isolation import VARIABLE, is_remote
from handler.engine.adapters.shared_adapters import AdapterNotes
from handler.engine.engine import Engine
from handler.errors import EndpointError, InvalidField, SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.storage.s3_download import download_prefix

AT_THE_START_ONLY = "this line takes them at the start only; name them in ENDPOINT_LORA_MODULES"


def load_adapters(
    engine: Engine,
    plan: EnginePlan,
    config: EndpointConfig,
    moved: Mapping[str, str],
    stage: Callable[[str], None],
    notes: AdapterNotes | None = None,
) -> None:
    """Gives the engine its adapters: those configured are loaded, on a line that can, or known to it already.

    :param moved: the configured address of what was brought -> its directory.
    :param notes: for other processes over the same engine.

    :raises SettingError: naming the adapter that cannot be loaded.
    """
    if not engine.takes_adapters():
        return
    directory = config.scratch / "adapters"
    adapters = engine.with_adapters(
        directory, config.max_adapters, lambda source: bring(moved.get(source, source), config), notes
    )
    setting = config.source("lora_modules").name or "ENDPOINT_LORA_MODULES"
    stage("load adapters")
    if plan.line == "cpu":
        adapters.load_nothing(Path(str(plan.engine_args["model"])))
        adapters.tell()
    for name, source in config.lora_modules.items():
        if plan.line != "cpu":
            adapters.declare(name, moved.get(source, source))
            continue
        try:
            adapters.load(name, source)
        except EndpointError as error:
            raise SettingError(setting, error.message.rstrip("."), "Fix the adapter, or leave it out.") from None
    if plan.line != "cpu":
        adapters.fixed = AT_THE_START_ONLY
        adapters.tell()


def bring(source: str, config: EndpointConfig) -> Path:
    """The directory of an adapter; one on S3 is fetched.

    :raises EndpointError: it cannot be.
    """
    if config.network_isolation and is_remote(source, hub=False):
        raise InvalidField("src", f"{VARIABLE} is set, and it is not on this machine")
    if not source.startswith("s3://"):
        return Path(source)
    target = config.scratch / "models" / sha256(source.encode()).hexdigest()[:16]
    download_prefix(source, target, "src", lambda done, total: None)
    return target
