"""Parses engine arguments with vLLM's own parser."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final, NoReturn

from vllm.engine.arg_utils import AsyncEngineArgs

from handler.config.endpoint_config import EndpointConfig
from handler.engine.headless_node import option_words
from handler.errors import SettingError
from handler.json_value import Json

try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:  # 0.9.1, 0.11.0
    from vllm.utils import FlexibleArgumentParser

# The native plugin takes level 2 for vLLM's default and lowers it to 1, unless the process's command line has this
# option (vllm-neuron 0.24.0.1.1.0, vllm/platform.py, apply_config_platform_defaults).
LEVEL: Final = "--optimization-level"


class _SettingsParser(FlexibleArgumentParser):  # type: ignore[misc]  # vLLM is untyped from here
    """vLLM's own parser, so that values mean the same as for `vllm serve`. It raises an error instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def engine_args(arguments: Mapping[str, Json], config: EndpointConfig) -> AsyncEngineArgs:
    """Parses a plan's engine arguments with vLLM's own parser. `sys.argv` shows a level of optimization.

    :param config: names the setting behind an argument, for messages.
    :raises SettingError: vLLM's parser rejects an argument. The error names its setting.
    """
    parser = _SettingsParser(prog="serve", add_help=False, allow_abbrev=False)
    AsyncEngineArgs.add_cli_args(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    argv: list[str] = []
    for name, value in arguments.items():
        words = option_words(name, value)
        if value is False and words[0] not in options:  # a flag without a negated form
            continue
        try:
            parser.parse_args(words)
        except (ValueError, SystemExit) as error:
            source = config.source(f"engine_args.{name}").name or config.source(name).name or name
            raise SettingError(source, f"vLLM rejects it ({error})", "Give a value that vLLM accepts.") from None
        argv += words
    sys.argv = [word for word in sys.argv if not word.startswith(LEVEL)]
    if LEVEL in argv:
        sys.argv.append(f"{LEVEL}={arguments['optimization_level']}")
    return AsyncEngineArgs.from_cli_args(parser.parse_args(argv))
