"""Imports vLLM in gunicorn's master while the endpoint serves, so that the next serving process has it already.

A serving process ends with its engine. The master forks its successor, which would import vLLM for 7 to 10 s before it
can start an engine. With the import in the master it starts one at once, and shares that memory. The master computes
nothing and holds no device.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable

from container.server.ping_state import PASSED_ON, PingState
from handler.config.endpoint_config import EndpointConfig
from handler.engine.launch import import_vllm
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.planning.examination import examine_config
from handler.startup.checked_plan import use_environment
from handler.startup.custom_code_loading import names_requirements
from handler.startup.start import starts_without_model

logger = logging.getLogger(__name__)
LOWEST_PRIORITY = 19  # of the importing thread alone
LOADED = "vLLM is loaded for the next serving process"  # in the log
LOOK = 1.0  # seconds between two looks at whether the endpoint serves


class Preload:
    """One import. The methods are called in the master's main thread.

    :param load: imports vLLM.
    :param state: says whether the endpoint serves.
    :param after: seconds of serving before the import. A short life has no successor.
    """

    def __init__(self, load: Callable[[], None], state: PingState, after: float) -> None:
        self._load, self._state, self._after = load, state, after
        self._stopped, self._settled = threading.Event(), threading.Event()
        self._settled.set()
        self._done = False

    def begin(self) -> None:
        """Imports vLLM later, in a thread. Does nothing if it is imported."""
        if not self._done:
            self._stopped.clear()
            self._settled.clear()
            threading.Thread(target=self._run, name="preload", daemon=True).start()

    def settle(self) -> None:
        """Ends the wait for the import, or waits for its end: a fork in between would have half of it."""
        self._stopped.set()
        self._settled.wait()

    def _run(self) -> None:
        try:
            self._import()
        finally:
            self._settled.set()
        if self._done:
            # A thread that has imported torch must not end while the master forks, see `StartSteps`. So it stays.
            threading.Event().wait()

    def _import(self) -> None:
        served = 0.0
        while served < self._after:
            if self._stopped.wait(min(LOOK, self._after)):
                return
            served = served + LOOK if self._state.read()[0] in (200, PASSED_ON) else 0.0
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
        began = time.monotonic()
        try:
            self._load()
        except Exception as error:  # the serving process says why an import fails, and the endpoint goes on
            logger.warning("vLLM is not loaded for the next serving process: %s: %s", type(error).__name__, error)
            return
        finally:
            self._done = True
        gc.freeze()
        logger.info("%s: %.1f s", LOADED, time.monotonic() - began)


def preload(config: EndpointConfig) -> None:
    """Imports vLLM, unless packages of the model's own code must be there before.

    :raises EndpointError: the configuration cannot be read any more.
    """
    if names_requirements(config):
        return
    plan = EnginePlan("cpu", {}) if starts_without_model(config) else examine_config(config, build=None).plan
    if plan is not None:
        use_environment(plan)
        import_vllm(core=plan.line == "cpu")
