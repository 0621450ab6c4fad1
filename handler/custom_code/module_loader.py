"""Loads the owner's module: once, with its directory first among those that imports are looked for in."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from types import ModuleType

from handler.errors import SettingError

logger = logging.getLogger(__name__)


def load_module(file: Path, *extra: Path) -> ModuleType:
    """:param extra: further directories for its imports.
    :raises SettingError: importing it raised; the traceback is in the log.
    """
    for directory in (*extra, file.parent):
        if str(directory) not in sys.path:
            sys.path.insert(0, str(directory))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise SettingError(file.name, "is no Python module", "Give a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # pickles and dataclasses of it look for it by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[file.stem]
        raise failed(file.name, "importing it", error) from error
    return module


def failed(name: str, doing: str, error: Exception) -> SettingError:
    """For the start's end a sentence, for the log all of it."""
    logger.error("%s: %s raised %s", name, doing, type(error).__name__, exc_info=error)
    said = (str(error).strip().splitlines() or [""])[0][:300]
    problem = f"{doing} raised {type(error).__name__}{': ' if said else ''}{said}"
    return SettingError(name, problem, "The traceback is in the log.")
