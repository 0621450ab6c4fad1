"""`serve`, the command that SageMaker runs: reads the environment, binds the port and starts gunicorn.

vLLM's processes import this module again, because it is the main module of the process that spawned them. They load
whatever it imports at its top, and vLLM 0.32.0 does not start where Flask is loaded. So `main` imports the server.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from handler.json_value import Json
    from handler.startup.lifecycle import TimedStep

logger = logging.getLogger("container.serve")  # also if this is the main module
EXIT_SETTING = 2
SHARED_MEMORY = "/dev/shm"  # noqa: S108
HELP = """serve answers SageMaker's requests on SAGEMAKER_BIND_TO_PORT (8080). Environment variables configure it:
  ENDPOINT_MODEL=/path/to/model SM_VLLM_MAX_MODEL_LEN=4096 serve
neuron-endpoint config explain shows them, neuron-endpoint check tries a model with them, and
neuron-endpoint translate -- vllm serve ... turns the options of vllm serve into them."""
# At INFO vLLM's lines bury the stages. No endpoint sends usage statistics.
ENVIRONMENT_DEFAULTS = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Each process that imports torch would warn that there is no GPU.
    "TORCH_LOGS": "-torch.utils.cpp_extension,-torch.utils.flop_counter",
}


def main() -> None:
    """The console script. Exit status: 0 after SIGTERM, 2 for a bad setting, 1 or 3 for a failed engine."""
    from container import standard_streams

    # The kernel drops a signal without a handler if this is the first process of a container. gunicorn sets its own.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    standard_streams.never_raise()
    refuse_arguments(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("botocore").setLevel(logging.WARNING)  # at INFO it logs where it found credentials
    from container.server.acceptor_process import AcceptorProcess, listen
    from container.telemetry import event_log
    from handler.config import tracing_settings as tracing
    from handler.config.loading.config_loader import load
    from handler.config.problems import each
    from handler.errors import SettingError

    try:
        config = load(os.environ)
        tracing.check(os.environ, isolated=config.network_isolation)
        check_shared_memory()
        check_batch_store(config)
        listener = listen(config)
    except SettingError as error:
        for problem in each(error):
            print(f"serve: {problem.message}", file=sys.stderr, flush=True)
        sys.exit(EXIT_SETTING)
    prepare(os.environ, config)
    event_log.use(config)
    acceptor = AcceptorProcess(listener, config.stall)
    acceptor.start()
    timeline = Timeline(process_start(), as_json=event_log.json_wanted(config))
    timeline.bound(listener.getsockname()[1])

    from container.server.gunicorn_server import GunicornServer
    from container.service import Service
    from handler.startup.lifecycle import Lifecycle

    def make_service() -> Service:
        lifecycle = Lifecycle(timeline.stage_ended, timeline.ready, timeline.failed)
        timeline.steps = lifecycle.timeline
        return Service.of(config, lifecycle)

    GunicornServer(config, make_service, acceptor).run()


def refuse_arguments(arguments: list[str]) -> None:
    """Ends the process if there are any but the word that SageMaker gives to an image whose command this is.

    An option of `vllm serve` would have no effect, and nobody would hear of it.
    """
    arguments = arguments[1:] if arguments[:1] == ["serve"] else arguments
    if not arguments:
        return
    asked = arguments[0] in ("-h", "--help")
    problem = "" if asked else f"serve: it takes no arguments, and '{arguments[0][:80]}' would have no effect.\n"
    print(problem + HELP, file=sys.stdout if asked else sys.stderr, flush=True)
    sys.exit(0 if asked else EXIT_SETTING)


def check_shared_memory(directory: str = SHARED_MEMORY) -> None:
    """:raises SettingError: the processes of vLLM cannot make their semaphores and shared memory (shm_open(3))."""
    from handler.errors import SettingError

    if Path(directory).is_dir() and not os.access(directory, os.W_OK):
        fix = "Mount it writable: a tmpfs (docker: --shm-size, Kubernetes: an emptyDir with medium Memory)."
        raise SettingError(directory, "it cannot be written to, and vLLM's processes share memory there", fix)


def check_batch_store(config: EndpointConfig) -> None:
    """:raises SettingError: the setting names no store, or a directory that cannot be written to."""
    from handler.config.start_rules import refused, store_uri
    from handler.errors import SettingError
    from handler.storage.directory_objects import DirectoryObjects
    from handler.storage.open_store import open_objects

    if not config.batch_store:
        return
    for error in refused(config, engine=False, artifacts=False, store=False):
        raise error
    store, setting = open_objects(store_uri(config.batch_store)), config.setting("batch_store")
    if isinstance(store, DirectoryObjects):
        fix = "Name a directory that this process may write to, or s3://bucket/prefix."
        try:
            store.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(setting, f"{store.root} cannot be made ({error.strerror})", fix) from None
        if not os.access(store.root, os.W_OK | os.X_OK):
            raise SettingError(setting, f"{store.root} cannot be written to", fix)


def prepare(environ: MutableMapping[str, str], config: EndpointConfig) -> None:
    """Sets variables of other software whose defaults do not suit an endpoint."""
    from handler.config.loading.network_isolation import OFFLINE
    from handler.config.values import to_port_range

    if config.network_isolation:
        environ.update(OFFLINE)
    if not several_nodes(config):
        # torch's gloo listens on ports that the kernel picks, outside any range. Other machines must not reach them.
        environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if config.safe_port_range is not None:
        # vLLM looks for free ports from this one upwards (vllm/utils/network_utils.py).
        environ.setdefault("VLLM_PORT", str(to_port_range(config.safe_port_range)[0]))
    for name, value in ENVIRONMENT_DEFAULTS.items():
        environ.setdefault(name, value)


def several_nodes(config: EndpointConfig) -> bool:
    """Whether the engine spans several machines."""
    engine_args = config.engine_args
    return (config.nodes or 1) > 1 or engine_args.get("nnodes", 1) != 1 or "data_parallel_address" in engine_args


def process_start() -> float:
    """The start of this process, in seconds since boot. So imports before `main` count as well."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


class Timeline:
    """Prints one line for each stage, with its time and the time since the process began; or logs it as an event.

    At the end of the start, successful or not, one JSON line has the begin and the end of each step and stage.

    :param began: seconds since boot.
    :ivar steps: returns the steps and stages, as `Lifecycle.timeline`.
    """

    def __init__(self, began: float, *, as_json: bool = False) -> None:
        self.began = began
        self.port = 0
        self._as_json = as_json
        self.steps: Callable[[], list[TimedStep]] = list

    def _line(self, text: str, event: str, **fields: Json) -> None:
        since = time.clock_gettime(time.CLOCK_BOOTTIME) - self.began
        if self._as_json:
            extra = {"event": event, "fields": {**fields, "since_start_seconds": round(since, 2)}}
            logger.log(logging.ERROR if event == "failed" else logging.INFO, "%s", text, extra=extra)
        else:
            print(f"[{since:6.1f} s] {text}", flush=True)

    def bound(self, port: int) -> None:
        self.port = port
        self._line(f"listening on port {port}; GET /ping shows the stage", "listening", port=port)

    def stage_ended(self, stage: str, seconds: float) -> None:
        self._line(f"{stage}: {seconds:.1f} s", "stage", stage=stage, seconds=round(seconds, 3))

    def _steps_line(self) -> None:
        now = time.monotonic()
        zero = now - time.clock_gettime(time.CLOCK_BOOTTIME) + self.began
        steps: list[Json] = [
            {
                "step": step.name,
                "begin_seconds": round(step.began - zero, 2),
                "end_seconds": round((step.ended or now) - zero, 2),
                "waited_for": list(step.waited_for),
            }
            for step in self.steps()
        ]
        if self._as_json:
            self._line("the steps of the start", "timeline", steps=steps)
        else:
            print(json.dumps({"event": "timeline", "steps": steps}), flush=True)

    def failed(self, reason: str) -> None:
        self._steps_line()
        self._line(f"failed: {reason}", "failed", reason=reason)

    def ready(self) -> None:
        self._steps_line()
        curl = (  # without a temperature, which a static sampler does not take
            f"curl -s http://127.0.0.1:{self.port}/invocations -H 'Content-Type: application/json' "
            """-d '{"messages": [{"role": "user", "content": "What does /ping mean?"}]}'"""
        )
        self._line(f"ready. Try:\n{curl}", "ready", port=self.port)


if __name__ == "__main__":
    main()
