"""Finds what would make a model's configuration run code, although the endpoint does not trust the model.

- transformers reads `trust_remote_code` from configurations nested in a model's own, and then runs Python of the
  model or of a hub (CVE-2026-5241, LightGlue's detector).
- An attention implementation with a slash in its name is a kernel that is fetched from a hub (CVE-2026-4372,
  `_attn_implementation_internal`).
- vLLM loads a few architectures with `trust_remote_code=True`, whatever it was told (CVE-2026-27893).

`auto_map` alone runs nothing: transformers follows it only when it is told to trust, and many models that vLLM supports
itself have one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.checkpoint_files import unreadable
from handler.regular_files import open_regular, regular_files

FIX: Final = "Remove the key, or set ENDPOINT_TRUST_REMOTE_CODE=true if you trust whoever made the model."
# Bytes. The configurations of real models have some 10 KB.
LARGEST: Final = 8 << 20
# Architectures that vLLM 0.16.0 loads so (model_executor/models: nemotron_vl.py, kimi_k25.py, interns1_pro.py).
TRUSTING: Final = {
    "Llama_Nemotron_Nano_VL",
    "KimiK25ForConditionalGeneration",
    "InternS1ProForConditionalGeneration",
}
# Levels that are looked at. A deeper configuration is refused.
DEEPEST: Final = 64
LONGEST: Final = 200  # characters of a key's path


def check_remote_code(directory: Path, setting: str) -> None:
    """Examines every configuration file of a model, an adapter or a draft. Nothing of it is imported.

    :param setting: what names the model, for the error.
    :raises SettingError: a file has a key that would run code, or cannot be examined.
    """
    try:
        for file in regular_files(directory):
            if file.suffix == ".json" and ("config" in file.name or file.name == "params.json"):
                with open_regular(file, directory, limit=LARGEST) as opened:
                    _check(opened.read(), file.relative_to(directory), setting)
    except OSError as error:
        raise unreadable(Path(error.filename), error) from None


def _check(text: bytes, name: Path, setting: str) -> None:
    try:
        document: Json = json.loads(text)
    except (ValueError, RecursionError):
        return  # whoever reads it as JSON ends with an error that names it
    for key, why in _findings(document):
        raise SettingError(setting, f"{name} has {key}, {why}", FIX)


def _findings(value: Json, where: str = "", depth: int = 0, *, kernel: bool = False) -> Iterator[tuple[str, str]]:
    """Keys that would run code, with the reason.

    :param where: the path of the value's key, or its beginning.
    :param kernel: the value is that of a key for attention kernels, or below it.
    """
    if depth > DEEPEST:
        yield where, f"which is nested more than {DEEPEST} deep"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _findings(item, f"{where}[{index}]"[:LONGEST], depth + 1, kernel=kernel)
    elif isinstance(value, dict):
        for key, item in value.items():
            path = (f"{where}.{key}" if where else key)[:LONGEST]
            kernels = kernel or "attn_implementation" in key
            if key == "trust_remote_code" and item:
                yield path, "which makes the model's or a hub's Python code run"
            if kernels and isinstance(item, str) and "/" in item:
                yield path, "which fetches a kernel from a hub and runs it"
            if key == "architectures" and isinstance(item, list):
                for name in TRUSTING.intersection(map(str, item)):
                    yield f"{path} {name}", "which vLLM loads with the model's own Python code"
            yield from _findings(item, path, depth + 1, kernel=kernels)
