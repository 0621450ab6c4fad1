"""Finds the custom code of a model, without running it."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError

HOOKS_FILE: Final = "inference.py"
HANDLE_FILE: Final = "model.py"
HANDLE: Final = "handle"
# The variable with the name of the hooks' file (sagemaker_inference/parameters.py). The SageMaker Python SDK sets it.
PROGRAM: Final = "SAGEMAKER_PROGRAM"
# The decorators of LMI's model.py that are not supported (djl-serving,
# serving/docs/lmi/user_guides/*_formatter_schema.md).
DECORATORS: Final = frozenset({"input_formatter", "output_formatter", "prediction_handler", "init_handler"})


@dataclass(frozen=True, slots=True)
class CodeSource:
    """The custom code of a model.

    :param model_dir: the argument of `model_fn`.
    :param file: the module to load.
    :param lmi: whether it has `handle(inputs)` rather than hooks.
    """

    model_dir: Path
    file: Path
    lmi: bool

    @property
    def requirements(self) -> Path | None:
        """The `requirements.txt` in the same directory as the module, if there is one."""
        file = self.file.with_name("requirements.txt")
        return file if file.is_file() else None


def find_code(config: EndpointConfig, model_path: str, environ: Mapping[str, str] = os.environ) -> CodeSource | None:
    """The custom code of a local model. None if it has none.

    :raises SettingError: the model has code of both kinds, `model.py` has unsupported decorators, or the file that
        SAGEMAKER_PROGRAM names is missing.
    """
    if not config.custom_code:
        return None
    model_dir = Path(model_path)
    program = environ.get(PROGRAM) or HOOKS_FILE  # the SDK sets an empty value for a model without code
    hooks = model_dir / "code" / program
    handle = model_dir / HANDLE_FILE
    if program != HOOKS_FILE and not hooks.is_file():
        raise SettingError(PROGRAM, f"the model has no code/{program}", "Name a file in the model's code directory.")
    found = [
        CodeSource(model_dir, file, lmi)
        for file, lmi in ((hooks, False), (handle, True))
        if file.is_file() and (not lmi or _has_handle(file))
    ]
    if len(found) > 1:
        raise SettingError(HANDLE_FILE, "the model also has code/inference.py", "Keep one of the two.")
    return found[0] if found else None


def _has_handle(file: Path) -> bool:
    """Whether `model.py` is LMI custom code. Models may have other files with this name.

    :raises SettingError: it has decorated functions that LMI would call and this endpoint does not.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return False
    names: set[str] = set()
    for node in tree.body:
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
