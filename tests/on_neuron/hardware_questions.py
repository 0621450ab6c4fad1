"""Answers the questions that only a Neuron device settles, and prints a table to paste into an issue.

    python3 tests/on_neuron/hardware_questions.py MODEL [--only 1,4] [--line native-0.29] [--recipe FILE]

Needs what an image of a native line with this software has: vLLM, the plugin, `neuron-endpoint`. The endpoint rejects
some of these requests, so they go to vLLM's own `vllm serve`, with the arguments and variables of our plan.
Exit status: 0: every question has an answer; 1: some could not be asked, and the table says why; 2: no device.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

NO_DEVICE: Final = "no device"
DEVICES: Final = Path("/dev")
PRODUCT: Final = Path("/sys/devices/virtual/dmi/id/product_name")
START_SECONDS: Final = 7200
SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class NotAsked(Exception):
    """Why a question could not be asked."""


@dataclass(frozen=True, slots=True)
class Place:
    """What every question needs.

    :param directory: for caches and logs.
    :param recipe: the settings of a recipe for this instance, or "".
    """

    model: str
    line: str
    directory: Path
    recipe: str = ""


class Server:
    """A `vllm serve` that is ready."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], seconds: float, log: Path) -> None:
        self.port, self.process, self.seconds, self.log = port, process, seconds, log

    def complete(self, **fields: Any) -> dict[str, Any]:
        """The first choice of a completion.

        :raises NotAsked: it is an error, or the engine has ended.
        """
        body = json.dumps({"prompt": "a", "max_tokens": 16, "temperature": 0, **fields}).encode()
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as reply:
                choice: dict[str, Any] = json.load(reply)["choices"][0]
                return choice
        except urllib.error.HTTPError as error:
            raise NotAsked(f"{error.code}: {error.read(300).decode(errors='replace')}") from None
        except OSError as error:
            ended = self.process.poll()
            raise NotAsked(f"the engine ended ({ended}): {last_line(self.log)}" if ended else str(error)) from None


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if "Error" in line]
    return lines[-1][-200:] if lines else "its log has no error"


def planned(place: Place, settings: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Engine arguments and variables of our plan.

    :raises NotAsked: there is no plan.
    """
    command = ["neuron-endpoint", "plan", "--json", "--env", place.model]
    config = {"ENDPOINT_CONFIG": place.recipe} if place.recipe else {"ENDPOINT_LINE": place.line}
    done = subprocess.run(
        command, env={**os.environ, **config, **settings}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotAsked(f"no plan: {(done.stderr or done.stdout)[-200:]}")
    plan = json.loads(done.stdout)
    return plan["engine_args"], plan["env"]


@contextmanager
def served(
    place: Place, settings: Mapping[str, str] = {}, variables: Mapping[str, str] = {}, **arguments: Any
) -> Iterator[Server]:
    """A server with our plan for the settings, with more variables and arguments.

    :raises NotAsked: it does not become ready.
    """
    args, env = planned(place, settings)
    port = free_port()
    words = [word for name, value in {**args, **arguments}.items() if name != "model" for word in option(name, value)]
    cache = {"VLLM_CACHE_ROOT": str(place.directory / "cache")}
    command = ["vllm", "serve", args["model"], "--host", "127.0.0.1", "--port", str(port), *words]
    with running(place, command, {**cache, **env, **variables}, port, "/health") as server:
        yield server


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(place: Place, command: list[str], variables: Mapping[str, str], port: int, path: str) -> Iterator[Server]:
    """A server that answers 200 on a path.

    :raises NotAsked: it ends first, or takes too long.
    """
    log = Path(tempfile.mkstemp(dir=place.directory, suffix=".log")[1])
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        while not healthy(port, path):
            if process.poll() is not None:
                raise NotAsked(f"it did not start: {last_line(log)}")
            if time.monotonic() - started > START_SECONDS:
                raise NotAsked(f"it was not ready after {START_SECONDS} s")
            time.sleep(1)
        yield Server(port, process, time.monotonic() - started, log)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def option(name: str, value: Any) -> list[str]:
    word = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [word if value else f"--no-{word[2:]}"]
    items = value if isinstance(value, list) else [value]
    return [] if value is None else [word, *(item if isinstance(item, str) else json.dumps(item) for item in items)]


def healthy(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def seed(place: Place) -> str:
    with served(place) as server:
        texts = [server.complete(temperature=1, seed=7)["text"] for _ in range(2)]
        server.complete(temperature=1)
    return "yes: the same text twice" if texts[0] == texts[1] else "no: two texts; the 400 stays"


def logprobs(place: Place) -> str:
    with served(place, {"ENDPOINT_LOGPROBS": "true"}) as server:
        chosen = server.complete(logprobs=3)["logprobs"]
    rows = zip(chosen["token_logprobs"], chosen["top_logprobs"], strict=True)
    right = all(abs(own - max(top.values())) < 1e-3 for own, top in rows)
    values = [round(value, 2) for value in chosen["token_logprobs"][:4]]
    return f"{'yes' if right else 'no'}; the first: {values} (compare with the CPU engine)"


def structured(place: Place) -> str:
    with served(place, {"ENDPOINT_STRUCTURED_OUTPUTS": "true"}) as server, ThreadPoolExecutor(8) as pool:
        fields = [{"structured_outputs": {"json": SCHEMA}} if number % 2 else {} for number in range(8)]
        texts = [reply["text"] for reply in pool.map(lambda more: server.complete(max_tokens=64, **more), fields)]
    fitting = 0
    for text in texts[1::2]:
        try:
            fitting += isinstance(json.loads(text)["n"], int)
        except (ValueError, KeyError, TypeError):
            continue
    return f"{'yes' if fitting == 4 else 'no'}: {fitting} of 4 replies fit the schema, and the engine is alive"


def segments(place: Place) -> str:
    length = int(planned(place, {})[0].get("max_model_len") or 2048)
    prompt = [1000] * (length - 8)
    texts = []
    for more in ({}, {"max_num_batched_tokens": min(length, 16384)}):
        with served(place, **more) as server:
            texts.append(server.complete(prompt=prompt, max_tokens=8)["text"])
    return "yes: equal texts" if texts[0] == texts[1] else f"no: {texts}"


def forbidding(place: Place) -> str:
    ended = []
    for name in ("NEURON_LIBTORCH_ASSERT_CACHE_HIT", "VLLM_NEURON_DISABLE_WARMUP_COMPILE"):
        empty = tempfile.mkdtemp(dir=place.directory)
        try:
            with served(place, {}, {name: "1", "VLLM_CACHE_ROOT": empty}):
                pass
        except NotAsked as error:
            ended.append(f"{name} ({error})")
    return f"ends the start: {', '.join(ended)}" if ended else "neither variable ends a start with an empty cache"


def compiled_on_cpu(place: Place) -> str:
    store = (place.directory / "store").as_uri()
    instance = os.environ.get("ENDPOINT_INSTANCE") or f"ml.{product()}"
    command = ["neuron-endpoint", "compile", place.model, "--cpu", "--instance", instance, "--store", store]
    done = subprocess.run([*command, "--line", place.line], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAsked(f"the compile failed: {done.stderr[-200:]}")
    port = free_port()
    settings = {"ENDPOINT_ON_MISS": "fail", "ENDPOINT_ARTIFACT_STORE": store, "ENDPOINT_MODEL": place.model}
    own = {**settings, "ENDPOINT_LINE": place.line, "SAGEMAKER_BIND_TO_PORT": str(port)}
    try:
        with running(place, ["serve"], own, port, "/ping"):
            return "yes: a start on the device compiles nothing"
    except NotAsked as error:
        return f"no: {error}"


def recipe(place: Place) -> str:
    if not place.recipe:
        raise NotAsked(f"give --recipe with the file for this instance; its name is {product()}")
    with served(place) as server:
        return f"yes, in {server.seconds:.0f} s; the instance calls itself {product()}"


def traces(place: Place) -> str:
    with served(place):
        pass
    moved = place.directory / "moved"
    shutil.copytree(place.directory / "cache", moved, dirs_exist_ok=True)
    seconds = []
    for value in ("1", "0"):
        with served(place, {}, {"VLLM_CACHE_ROOT": str(moved), "TORCH_CACHING_PRECOMPILE": value}) as server:
            seconds.append(server.seconds)
    return f"start with moved traces {seconds[0]:.0f} s, without traces {seconds[1]:.0f} s"


QUESTIONS: Final[tuple[tuple[str, Callable[[Place], str]], ...]] = (
    ("Does `seed` count with sampling on the device?", seed),
    ("Are log probabilities right with synchronous scheduling?", logprobs),
    ("Does structured output hold beside plain requests?", structured),
    ("Do segments give the tokens of a single prefill?", segments),
    ("Which variable forbids a compile?", forbidding),
    ("Does a device find the graphs of a compile on a CPU?", compiled_on_cpu),
    ("Does the recipe of this instance start?", recipe),
    ("Can the traces of the Precompile Cache be moved?", traces),
)


def product() -> str:
    return PRODUCT.read_text().strip() if PRODUCT.is_file() else platform.machine()


def versions() -> str:
    named = ("vllm", "vllm-neuron", "neuronx-cc", "torch")
    installed = {name: each.version for each in metadata.distributions() if (name := each.name.lower()) in named}
    return ", ".join(f"{name} {installed[name]}" for name in named if name in installed) or "no vLLM"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--line", default="native-0.29")
    parser.add_argument("--recipe", default="")
    parser.add_argument("--only", default="", help="numbers of questions, as in 1,4")
    chosen = parser.parse_args()
    numbers = {int(number) for number in chosen.only.split(",") if number} or set(range(1, len(QUESTIONS) + 1))
    present = any(DEVICES.glob("neuron[0-9]*"))
    print(f"{product()}; {versions()}; {chosen.line}\n\n| question | answer |\n|---|---|")
    status = 0 if present else 2
    with tempfile.TemporaryDirectory() as directory:
        place = Place(chosen.model, chosen.line, Path(directory), chosen.recipe)
        for number, (question, ask) in enumerate(QUESTIONS, 1):
            if number not in numbers:
                continue
            answer = NO_DEVICE
            if present:
                try:
                    answer = ask(place)
                except (NotAsked, OSError, KeyError, ValueError) as error:
                    answer, status = f"not asked: {error}", 1
            print(f"| {number}. {question} | {' '.join(answer.split()).replace('|', '/')} |", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
