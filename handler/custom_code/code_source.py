"""Finds the code that comes with a model, without running any of it."""

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
# sagemaker-inference's name for the hooks' file (sagemaker_inference/parameters.py); the Python SDK sets it.
PROGRAM: Final = "SAGEMAKER_PROGRAM"
# Of LMI's model.py, what is not served (djl-serving, serving/docs/lmi/user_guides/*_formatter_schema.md).
DECORATORS: Final = frozenset({"input_formatter", "output_formatter", "prediction_handler", "init_handler"})


@dataclass(frozen=True, slots=True)
class CodeSource:
    """:param model_dir: what `model_fn` is given.
    :param file: the module to load.
    :param lmi: it has `handle(inputs)` rather than hooks.
    """

    model_dir: Path
    file: Path
    lmi: bool

    @property
    def directory(self) -> Path:
        """Where the module's own imports are looked for."""
        return self.file.parent

    @property
    def requirements(self) -> Path | None:
        """`requirements.txt` beside the hooks, or, with `model.py`, at the top of the model."""
        file = self.directory / "requirements.txt"
        return file if file.is_file() else None


def find_code(config: EndpointConfig, model_path: str, environ: Mapping[str, str] = os.environ) -> CodeSource | None:
    """The code of a model that is here; None where there is none.

    :raises SettingError: there are both kinds; `model.py` has what is not served; the program that is named is missing.
    """
    if not config.custom_code:
        return None
    model_dir = Path(model_path)
    program = environ.get(PROGRAM) or HOOKS_FILE  # the SDK sets it to nothing for a model without code
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
        raise SettingError(HANDLE_FILE, "the model has code/inference.py as well", "Keep one of the two.")
    return found[0] if found else None


def _has_handle(file: Path) -> bool:
    """Whether `model.py` is LMI's: other models have files of that name.

    :raises SettingError: it has decorated formatters, which LMI would call.
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
                    problem = f"'@{decorator.id}' is not served"
                    raise SettingError(HANDLE_FILE, problem, "Use handle(inputs), or the hooks of code/inference.py.")
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return HANDLE in names
