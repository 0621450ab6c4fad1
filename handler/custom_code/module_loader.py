"""Imports the module of custom code, with its directory and `lib/` below it first in `sys.path`.

The SageMaker Python SDK puts a model's `dependencies` into `code/lib` (sagemaker/utils.py, `repack_model`).
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType

from handler.errors import EndpointError, SettingError

logger = logging.getLogger(__name__)


def load_module(file: Path) -> ModuleType:
    """Imports a module from a file.

    :raises SettingError: the import raised an exception. The traceback is in the log.
    """
    for directory in (file.parent / "lib", file.parent):
        if str(directory) not in sys.path and directory.is_dir():
            sys.path.insert(0, str(directory))
    # A script may have the name of a package that this process uses.
    name = f"custom_code_{file.stem}" if file.stem in sys.modules else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SettingError(file.name, "it is not a Python module", "Use a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickle and dataclasses find the module by its name
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # a script that calls sys.exit, too
        del sys.modules[name]
        raise load_error(file.name, "importing it", error) from error
    return module


def load_error(name: str, doing: str, error: BaseException) -> SettingError:
    """The error for custom code that raised an exception while it was loaded. The traceback goes to the log.

    :param error: the exception, or the EndpointError that `HookCaller` made of it.
    """
    if isinstance(error, EndpointError) and isinstance(error.__cause__, BaseException):
        error = error.__cause__
    logger.error("%s: %s raised %s", name, doing, type(error).__name__, exc_info=error)
    message = (str(error).strip().splitlines() or [""])[0][:300]
    problem = f"{doing} raised {type(error).__name__}{': ' if message else ''}{message}"
    return SettingError(name, problem, "The traceback is in the log.")
