"""Finds the custom code of a model, without running it."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError

HOOKS_FILE: Final = "inference.py"
HANDLE_FILE: Final = "model.py"
HANDLE: Final = "handle"
HOOKS: Final = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn", "pre_model_fn", "model_warmup_fn")
# The variable with the name of the hooks' file (sagemaker_inference/parameters.py). The SageMaker Python SDK sets it.
PROGRAM: Final = "SAGEMAKER_PROGRAM"
# Where that file is. The SDK gives an archive in S3 for an entry_point without source_dir, and does not put it into the
# model. JumpStart's definitions name both variables with these values for models without code, too.
SUBMIT_DIRECTORY: Final = "SAGEMAKER_SUBMIT_DIRECTORY"
JUMPSTART: Final = (HOOKS_FILE, "/opt/ml/model/code")
# The decorators of LMI's model.py that are not supported (djl-serving,
# serving/docs/lmi/user_guides/*_formatter_schema.md).
DECORATORS: Final = frozenset({"input_formatter", "output_formatter", "prediction_handler", "init_handler"})
# The package with the decorators of the AWS vLLM images, and its variables (sagemaker/config.py,
# common/fastapi/config.py; 0.1.16).
STANDARDS: Final = "model_hosting_container_standards"
SCRIPT: Final = "CUSTOM_SCRIPT_FILENAME"
SCRIPT_DIRECTORY: Final = "SAGEMAKER_MODEL_PATH"
HANDLER_VARIABLES: Final = (
    "CUSTOM_FASTAPI_PING_HANDLER",
    "CUSTOM_FASTAPI_INVOCATION_HANDLER",
    "CUSTOM_PRE_PROCESS",
    "CUSTOM_POST_PROCESS",
    "CUSTOM_FASTAPI_MIDDLEWARE_THROTTLE",
    "CUSTOM_FASTAPI_MIDDLEWARE_PRE_POST_PROCESS",
)
# Functions that the package finds by their names (sagemaker/handler_resolver.py).
HANDLER_FUNCTIONS: Final = frozenset({"custom_sagemaker_ping_handler", "custom_sagemaker_invocation_handler"})


NO_ENGINE: Final = (
    "without an engine, the model needs code of its own",
    "Put code/inference.py into the model and leave ENDPOINT_CUSTOM_CODE on, or do not set ENDPOINT_ENGINE.",
)


class CodeKind(Enum):
    """The interface of custom code: hooks of SageMaker's toolkits, LMI's handle, or the decorators of `STANDARDS`."""

    HOOKS = auto()
    HANDLE = auto()
    STANDARDS = auto()


@dataclass(frozen=True, slots=True)
class CodeSource:
    """The custom code of a model.

    :param model_dir: the argument of `model_fn`.
    :param file: the module to load. With decorators it may be missing: then variables name functions of other modules.
    :param hooks: the hooks beside decorators.
    """

    model_dir: Path
    file: Path
    kind: CodeKind
    hooks: CodeSource | None = None

    @property
    def requirements(self) -> tuple[Path, ...]:
        """The `requirements.txt` in the same directory as each module."""
        files = [self.file] if self.hooks is None else [self.file, self.hooks.file]
        beside = dict.fromkeys(file.with_name("requirements.txt") for file in files)
        return tuple(file for file in beside if file.is_file())


def find_code(config: EndpointConfig, model_path: str, environ: Mapping[str, str] = os.environ) -> CodeSource | None:
    """The custom code of a local model. None if it has none.

    :raises SettingError: the model has code of two kinds for the same route, `model.py` has unsupported decorators, or
        a file that a variable names is missing.
    """
    if not config.custom_code:
        return None
    model_dir = Path(model_path)
    program = environ.get(PROGRAM, "")  # the SDK sets an empty value for a model without code
    file = model_dir / "code" / (program or HOOKS_FILE)
    if program and not file.is_file() and (program, environ.get(SUBMIT_DIRECTORY)) != JUMPSTART:
        fix = "Put it into the model's code directory (with source_dir=, SageMaker's SDK does), or unset the variable."
        raise SettingError(PROGRAM, f"the model has no code/{program}", fix)
    hooks = CodeSource(model_dir, file, CodeKind.HOOKS) if file.is_file() else None
    decorated = _decorated(model_dir, hooks, environ)
    if decorated is not None:
        return decorated
    handle = model_dir / HANDLE_FILE
    if not handle.is_file() or not _has_handle(handle):
        return hooks
    if hooks is not None:
        raise SettingError(HANDLE_FILE, "the model also has code/inference.py", "Keep one of the two.")
    return CodeSource(model_dir, handle, CodeKind.HANDLE)


def check_code(config: EndpointConfig, model_path: str, environ: Mapping[str, str]) -> None:
    """Checks a local model's custom code before it is deployed. Nothing is run or installed.

    :raises SettingError: as `find_code`; a module is not Python; without an engine there is no code.
    """
    source = find_code(config, model_path, environ)
    if source is None and config.engine == "none":
        raise SettingError(config.setting("engine"), *NO_ENGINE)
    for file in {part.file for part in (source, source and source.hooks) if part}:
        try:
            ast.parse(file.read_bytes() if file.is_file() else b"")
        except SyntaxError as error:
            name = str(file.relative_to(model_path)) if file.is_relative_to(model_path) else str(file)
            raise SettingError(name, f"line {error.lineno} is not Python ({error.msg})", "Correct it.") from None
        except (ValueError, OSError, RecursionError, MemoryError):
            continue  # its import says why


def _decorated(model_dir: Path, hooks: CodeSource | None, environ: Mapping[str, str]) -> CodeSource | None:
    """The code that uses the package `STANDARDS`. None if there is none."""
    directory = Path(environ.get(SCRIPT_DIRECTORY) or model_dir)
    script = directory / (environ.get(SCRIPT) or HANDLE_FILE)
    if environ.get(SCRIPT) and not script.is_file():
        raise SettingError(SCRIPT, f"there is no {script}", f"Name a file in {directory}.")
    if any(environ.get(name) for name in HANDLER_VARIABLES) or _uses_standards(script):
        if hooks is not None and _uses_standards(hooks.file):
            problem = f"code/{hooks.file.name} has decorators of {STANDARDS} too"
            raise SettingError(script.name, problem, "Keep them in one of the two files.")
        return CodeSource(model_dir, script, CodeKind.STANDARDS, hooks)
    if hooks is not None and _uses_standards(hooks.file):
        names = {node.name for node in _body(hooks.file) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        return CodeSource(model_dir, hooks.file, CodeKind.STANDARDS, hooks if names.intersection(HOOKS) else None)
    return None


def _body(file: Path) -> list[ast.stmt]:
    """The statements of a module. Empty if it cannot be parsed: its import says why."""
    try:
        return ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):  # the last two: nested too deeply
        return []


def _uses_standards(file: Path) -> bool:
    """Whether a module imports the package with the decorators, or has a function that the package finds by name."""
    for node in ast.walk(ast.Module(_body(file), [])):
        if isinstance(node, ast.Import) and any(alias.name.split(".")[0] == STANDARDS for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == STANDARDS:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in HANDLER_FUNCTIONS:
            return True
    return False


def _has_handle(file: Path) -> bool:
    """Whether `model.py` is LMI custom code. Models may have other files with this name.

    :raises SettingError: it has decorated functions that LMI would call and this endpoint does not.
    """
    names: set[str] = set()
    for node in _body(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Name) and decorator.id in DECORATORS:
                    problem = f"'@{decorator.id}' is not supported"
                    raise SettingError(HANDLE_FILE, problem, "Use handle(inputs), or the hooks of code/inference.py.")
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return HANDLE in names
