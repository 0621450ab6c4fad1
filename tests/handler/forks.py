"""Clean processes in a few milliseconds each: the server that forks them has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

import pytest


@contextmanager
def processes_with(*modules: str) -> Iterator[ForkServerContext]:
    """Processes that have imported the modules.

    :raises ImportError: there is no such module, which the server would pass over in silence.
    """
    for module in modules:
        import_module(module)
    # There is one server in a process. Another test's has other modules.
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setattr(sys.modules["__main__"], "__spec__", None)  # the test runner is not their program
        patch.delattr(sys.modules["__main__"], "__file__", raising=False)
        yield context
