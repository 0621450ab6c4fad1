"""Settings that only a start uses, and their form. `check` applies the same rules, so that the two cannot differ.

Nothing is opened, and no request is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.network_isolation import is_remote
from handler.errors import SettingError
from handler.storage.open_store import open_objects
from handler.storage.s3_download import split_uri

PLUGINS: Final = ("tool_parser_plugin", "reasoning_parser_plugin")


def store_uri(location: str) -> str:
    """The URI of a store that may be given as a plain directory."""
    return location if "://" in location else f"file://{location}"


def require_artifacts_place(source: str, setting: str) -> None:
    """:raises SettingError: compiled artifacts are neither in a directory or archive here, nor in S3."""
    if source.startswith("s3://"):
        split_uri(source, setting)
    elif "://" in source:
        why = f"'{source[:200]}' is neither s3:// nor a directory"
        raise SettingError(setting, why, "Give the artifacts' directory or s3:// prefix.")


def require_artifacts_to_restore(config: EndpointConfig) -> None:
    """:raises SettingError: the start may not compile, and has nothing to restore, so that it would."""
    if config.on_miss == "compile" or config.compiled_artifacts:
        return
    why, place = "there is no artifact store", "ENDPOINT_ARTIFACT_STORE"
    if config.artifact_store:
        if config.model.startswith("s3://") or not is_remote(config.model, hub=True):
            return
        why, place = "artifacts of a hub id have no key in the store", "ENDPOINT_MODEL to a directory or s3:// prefix"
    fix = f"Set {place}, or NEURON_COMPILED_ARTIFACTS, or remove this."
    raise SettingError(_named(config, "on_miss"), f"{why}, so a start would compile", fix)


def require_tool_settings(config: EndpointConfig) -> None:
    """:raises SettingError: automatic tool calls have no parser, or a plugin is not allowed to run."""
    if config.enable_auto_tool_choice and not config.tool_call_parser:
        setting = _named(config, "enable_auto_tool_choice")
        raise SettingError(setting, "it needs a parser for the model's tool calls", "Set ENDPOINT_TOOL_CALL_PARSER.")
    for name in PLUGINS:
        if (getattr(config, name, None) or config.engine_args.get(name)) and not config.trust_remote_code:
            fix = "Set ENDPOINT_TRUST_REMOTE_CODE=true to allow it."
            raise SettingError(_named(config, name), "it runs Python code, which is not allowed", fix)


def refused(config: EndpointConfig, *, engine: bool, artifacts: bool, store: bool) -> Iterator[SettingError]:
    """An error for each setting that the start refuses.

    :param engine: there is one, so that the front-end settings are used.
    :param artifacts, store: the line loads artifacts that were compiled beforehand, or keeps them in a store.
    """
    rules: list[Callable[[], object]] = []
    if config.batch_store:
        uri = store_uri(config.batch_store)
        rules.append(lambda: open_objects(uri, _named(config, "batch_store")))
    if (place := config.compiled_artifacts) and artifacts:
        rules.append(lambda: require_artifacts_place(place, _named(config, "compiled_artifacts")))
    if (saved := config.artifact_store) and store and not config.compiled_artifacts:
        rules.append(lambda: open_objects(saved, _named(config, "artifact_store")))
    if artifacts:
        rules.append(lambda: require_artifacts_to_restore(config))
    if engine:
        rules.append(lambda: require_tool_settings(config))
    for rule in rules:
        try:
            rule()
        except SettingError as error:
            yield error


def _named(config: EndpointConfig, name: str) -> str:
    """The name under which a value was given, for messages."""
    setting = config.setting(name)
    return f"ENDPOINT_{name.upper()}" if setting == name else setting
