"""The chat template of a model: the configured one, and the model's own, of which `check` reads the files.

While it serves, vLLM finds the model's own (handler/engine/engine_client/client_adapter.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.model_file_rules import MOUNT
from handler.config.value_source import Origin
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.checkpoint_files import CheckpointFiles, read_json
from handler.regular_files import open_regular

FILE = "chat_template.jinja"
# Bytes. Templates of real models have up to 30 KB.
LARGEST = 256 * 1024


def configured_template(config: EndpointConfig, files: CheckpointFiles | None) -> str | None:
    """The text of the configured template. A value with braces or a line end is the template, any other a file.

    A path where SageMaker puts the model means one of its files, also where `check` reads the model elsewhere.

    :param files: the model's. A file that they themselves name must be one of them.
    :raises SettingError: there is no such file, or it cannot be read.
    """
    value, source = config.chat_template, config.source("chat_template")
    if value is None or any(mark in value for mark in "{}\n"):
        return value
    setting, inside = source.name or "ENDPOINT_CHAT_TEMPLATE", source.origin is Origin.MODEL_FILE
    try:
        content = files.read(value) if files is not None and (inside or not value.startswith("/")) else None
        if content is None and not inside and Path(value).is_file():
            content = open_regular(Path(value), limit=LARGEST).read()
        elif content is None and files is not None and value.startswith(f"{MOUNT}/"):
            content = files.read(value.removeprefix(f"{MOUNT}/"))
        if content is not None:
            return content.decode()
    except (SettingError, OSError, UnicodeDecodeError) as error:
        why = f"it cannot be read ({getattr(error, 'problem', None) or getattr(error, 'strerror', 'it is not UTF-8')})"
        raise SettingError(setting, why, "Name a text file.") from None
    fix = "Give the path of a file, the name of a file in the model's directory, or the template itself."
    raise SettingError(setting, f"there is no file '{value[:200]}'", fix)


def own_template(files: CheckpointFiles, config: Mapping[str, Json]) -> str | None:
    """The model's own: a file, or what tokenizer_config.json has, by itself or as the default of several.

    :raises UnicodeDecodeError: the file is not UTF-8. transformers raises it, too.
    """
    if (content := files.read(FILE)) is not None:
        return content.decode()
    template: Json = config.get("chat_template") or (read_json(files, "chat_template.json") or {}).get("chat_template")
    for item in template if isinstance(template, list) else []:
        if isinstance(item, dict) and item.get("name") == "default":
            template = item.get("template")
    return template if isinstance(template, str) else None
