"""Writes the table of vLLM's engine arguments that `handler.config` reads, one file a version.

    python -m requirements.vllm_arguments                                    # the vLLM installed here
    python -m requirements.vllm_arguments --source vllm/engine/arg_utils.py --version 0.9.1   # one that is not

The installed vLLM is asked through its own parser. For a version that cannot be installed here (the Neuron forks) the
fields of `EngineArgs` are read from the source without running it: the kinds are coarser, and no choices are known.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

TABLES = Path(__file__).parents[1] / "handler" / "config" / "vllm_arguments"
# What Python and vLLM call their converters (vllm/engine/arg_utils.py, 0.16.0), by what they accept.
CONVERTERS = {
    **{name: name for name in ("str", "int", "float", "bool")},
    "human_readable_int": "int",
    "human_readable_int_or_auto": "int",
    "union_dict_and_str": "json",
    "loads": "json",
    "parse_dataclass": "json",
}
Argument = dict[str, Any]


def installed() -> dict[str, Any]:
    """The table of the vLLM that is installed. Imports vLLM: some seconds."""
    import vllm
    from vllm.engine.arg_utils import AsyncEngineArgs

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # 0.9.1, 0.11.0
        from vllm.utils import FlexibleArgumentParser
    try:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
    except ImportError:  # 0.32.0
        from vllm.entrypoints.launchers.cli_args import make_arg_parser

    engine_parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser(add_help=False))
    engine = {action.dest: _described(action) for action in engine_parser._actions}
    server = {action.dest for action in make_arg_parser(FlexibleArgumentParser(add_help=False))._actions}
    return {**_table(vllm.__version__, engine, sorted(server - set(engine))), **_registered(), **_variables()}


def _registered() -> dict[str, list[str]]:
    """The models that this vLLM and its transformers know, and the parts of it that arguments name."""
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.model_executor import model_loader
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
    from vllm.model_executor.models.registry import ModelRegistry
    from vllm.reasoning import ReasoningParserManager
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    try:
        from vllm.tool_parsers import ToolParserManager
    except ImportError:  # 0.9.1, 0.11.0
        from vllm.entrypoints.openai.tool_parsers import ToolParserManager
    try:
        from vllm.renderers import registry
        from vllm.tokenizers.registry import _VLLM_TOKENIZERS
    except ImportError:  # 0.11.0
        from vllm.config.model import TokenizerMode

        modes = set(get_args(TokenizerMode))
    else:
        modes = {"auto", "slow", *_VLLM_TOKENIZERS.keys() & registry._VLLM_RENDERERS.keys()}

    try:
        from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
    except ImportError:  # 0.11.0
        encoder_connectors: list[str] = []
    else:
        encoder_connectors = sorted(ECConnectorFactory._registry)

    def registered(manager: Any, dictionary: str) -> list[str]:
        # 0.11.0 has a dictionary instead.
        return sorted(getattr(manager, "list_registered", lambda: getattr(manager, dictionary))())

    tables = [table for name, table in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    classes = {name for table in tables for name in table.values() if isinstance(name, str)}
    return {
        "architectures": sorted({*ModelRegistry.get_supported_archs(), *classes}),
        "model_types": sorted({*CONFIG_MAPPING_NAMES, *_CONFIG_REGISTRY.keys()}),
        "tool_parsers": registered(ToolParserManager, "tool_parsers"),
        "reasoning_parsers": registered(ReasoningParserManager, "reasoning_parsers"),
        "quantizations": sorted(QUANTIZATION_METHODS),
        "kv_connectors": sorted(KVConnectorFactory._registry),
        "ec_connectors": encoder_connectors,
        "load_formats": sorted(model_loader._LOAD_FORMAT_TO_MODEL_LOADER),
        "tokenizer_modes": sorted(modes),
    }


def _variables() -> dict[str, Any]:
    """The forms of vLLM's own environment variables: `int`, `float`, or the words that it knows.

    Only of versions whose core reads all of them at each start. Words that may have capitals are there in both.
    """
    import logging

    from vllm import envs

    if not hasattr(envs, "enable_envs_cache"):
        return {}
    forms = {name: _form(name, read) for name, read in envs.environment_variables.items() if name.startswith("VLLM_")}
    levels = [level for level in logging.getLevelNamesMapping() if level.isupper()]
    forms["VLLM_LOGGING_LEVEL"] = [*levels, *map(str.lower, levels)]  # vLLM's logging is set up with its capitals
    return {"variables": {name: form for name, form in sorted(forms.items()) if form}}


def _form(name: str, read: Callable[[], object]) -> str | list[str]:
    """How a variable's value must be. Empty if it may be any text, or a list."""

    def refusal(text: str) -> str:
        with patch.dict(os.environ, {name: text}):
            try:
                read()
            except Exception as error:
                return str(error)
        return ""

    refused = refusal("x")
    if not refused or not refusal("{}"):
        return ""
    for form, text in (("float", "1.5"), ("int", "7")):
        if not refusal(text):
            return form
    words = re.findall(r"'([^']*)'", refused.partition("Valid options:")[2])
    spelled = [
        each for word in words for each in dict.fromkeys((word, word.lower(), word.upper())) if not refusal(each)
    ]
    return [] if len(words) > 1 and not refusal(",".join(words)) else spelled


def from_source(source: str, version: str) -> dict[str, Any]:
    """The table of a version from the text of its `vllm/engine/arg_utils.py`."""
    engine = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name in {"EngineArgs", "AsyncEngineArgs"}:
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    engine[field.target.id] = _annotated(ast.unparse(field.annotation))
    return _table(version, engine, [])


def _table(version: str, engine: dict[str, Argument], server: list[str]) -> dict[str, Any]:
    version = version.partition("+")[0]
    return {"vllm": version, "engine": dict(sorted(engine.items())), "server": server}


def _described(action: argparse.Action) -> Argument:
    kind = "bool" if action.nargs == 0 else _kind(action.type)
    argument: Argument = {"kind": "list", "item": kind} if action.nargs in {"+", "*"} else {"kind": kind}
    if action.choices is not None:
        argument["choices"] = [choice for choice in action.choices if choice != "None"]
    return argument


def _kind(convert: object) -> str:
    """Returns what an argparse converter accepts. vLLM wraps most converters in closures, which are inspected."""
    if convert is None:
        return "str"
    name = getattr(convert, "__name__", "")
    if name in CONVERTERS:
        return CONVERTERS[name]
    if inspect.isfunction(convert):
        inner: list[Callable[..., Any]] = [
            value for value in inspect.getclosurevars(convert).nonlocals.values() if callable(value)
        ]
        if len(inner) == 1:
            return _kind(inner[0])
    return "str"


def _annotated(annotation: str) -> Argument:
    text = annotation.lower()
    if any(part in text for part in ("dict", "mapping", "config", "overrides")):
        return {"kind": "json"}
    if "list" in text or "tuple" in text:
        return {"kind": "list", "item": "int" if "int" in text else "float" if "float" in text else "str"}
    for kind in ("str", "float", "int", "bool"):
        if kind in text or (kind == "int" and "blocksize" in text):
            return {"kind": kind}
    return {"kind": "str"}


def text(table: dict[str, Any]) -> str:
    """The file: one line an argument, so that a version's differences can be read."""
    engine = ",\n".join(f"    {json.dumps(name)}: {json.dumps(about)}" for name, about in table["engine"].items())
    rest = "".join(f',\n  "{key}": {json.dumps(table[key])}' for key in table if key not in ("vllm", "engine"))
    return f'{{\n  "vllm": {json.dumps(table["vllm"])},\n  "engine": {{\n{engine}\n  }}{rest}\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="vllm/engine/arg_utils.py of the version")
    parser.add_argument("--version", help="the version, with --source")
    chosen = parser.parse_args()
    if bool(chosen.source) != bool(chosen.version):
        parser.error("--source and --version go together")
    table = from_source(chosen.source.read_text(), chosen.version) if chosen.source else installed()
    target = TABLES / f"{table['vllm']}.json"
    target.write_text(text(table))
    print(f"{target}: {len(table['engine'])} engine arguments")


if __name__ == "__main__":
    main()
