"""What the documents call working, as starts: rows of the guides, recipes, and the settings of docs/neuron-lines.md.

A start belongs to a line for which there is an engine here: the CPU's, a stand-in for the plugin, or the line's own
Python over a double of what is compiled, in an environment of its own. Rows and recipes of the other lines are planned,
and not started.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from handler.config.loading.config_loader import load
from handler.neuron.hardware.instance_catalogue import find_for_plan
from handler.neuron.planning.planner import default_line
from model_packaging.translation.source_text import read_text
from model_packaging.translation.translation import translated
from tests.guides.fact_run import LLAMA, MODELS, environment
from tests.guides.guide_facts import HERE, Fact, facts
from tests.recipes.recipe_files import FILES
from tests.recipes.recipe_files import MODELS as PUBLISHED

ROOT = Path(__file__).parents[2]
# Line -> what NEURON_STAND_IN is for it, and the vLLM that starts it. The CPU needs no stand-in, and has any vLLM.
ENGINES: Mapping[str, tuple[str, str]] = {
    "cpu": ("", ""),
    "nxdi-0.16": ("nxdi", "0.16.0"),
    "native-0.24": ("native", "0.24.0"),
    "native-0.29": ("native", "0.29.0"),
}
# Lines of vLLM's own backend, which serves two frameworks.
FRAMEWORKS = ("fork-0.9.1", "fork-0.7.2")
# Lines that are started by their own Python (tests/lines).
SERVED = ("optimum", "fork-0.9.1", "fork-0.9.1-tnx")
INSTANCES: Mapping[str, str] = {
    "nxdi-0.16": "ml.trn1.32xlarge",
    "native-0.24": "ml.trn2.48xlarge",
    "native-0.29": "ml.trn2.48xlarge",
}
COMMANDS = yaml.safe_load((ROOT / "tests" / "model_packaging" / "guide_commands.yaml").read_text(encoding="utf-8"))
# Name, line and instance of each guide's commands. Without a line: what the command itself means.
COMMAND_LINES = (
    ("user-guide", "", "ml.trn1.32xlarge"),
    ("installation", "", "ml.trn1.32xlarge"),
    ("transformers-neuronx", "fork-0.9.1-tnx", "ml.trn1.32xlarge"),
    ("405b-tutorial", "nxdi-0.16", "ml.trn2.48xlarge"),
    ("inf2-proposal", "fork-0.9.1-tnx", "ml.inf2.48xlarge"),
)
EAGER = {"SM_VLLM_ENFORCE_EAGER": "true", "SM_VLLM_MAX_MODEL_LEN": "1024"}
RECORD = Path(__file__).with_name("record.json")
SETTINGS_PAGE = ROOT / "docs" / "neuron-lines.md"
# A path in a row -> below what it is for the start: what comes with a model, or what this start writes.
PATHS = re.compile(r"(?<![\w/.:])(?:(models/|/adapters/)|/(q\b|opt/ml/artifacts|opt/ml/model/|tmp/models))")


@dataclass(frozen=True, slots=True)
class Start:
    """One start.

    :ivar number: `user-guide-17`, `recipe llama-...`, `neuron-lines ...`; the first of the rows with these settings.
    :ivar model: a key of `CONFIGS`, or a hub id.
    :ivar environ: as typed, with paths that `in_directories` moves.
    :ivar requests: the sampling fields of bodies that rows call accepted.
    """

    number: str
    line: str
    instance: str
    model: str
    environ: Mapping[str, str]
    requests: tuple[Mapping[str, Any], ...] = ()

    @property
    def settings(self) -> str:
        """A digest of what is started."""
        shown = json.dumps([self.line, self.model, dict(self.environ)], sort_keys=True)
        return hashlib.sha256(shown.encode()).hexdigest()[:16]

    @property
    def platform(self) -> str:
        """What the plugin finds on the instance."""
        return find_for_plan(self.instance).platform if self.instance else ""

    def in_directories(self, full: Path, work: Path) -> dict[str, str]:
        """The environment with its paths below `full` (models and adapters) and `work` (what the start writes)."""

        def moved(match: re.Match[str]) -> str:
            return f"{full}/{match[1].lstrip('/')}" if match[1] else f"{work}/{match[2]}"

        return {name: PATHS.sub(moved, value) for name, value in self.environ.items()}


def _slug(model: str) -> str:
    return re.sub(r"[^\w.-]+", "-", model).strip("-")


# Model -> the published config.json of it.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    **{f"models/{name}": {**LLAMA, **changes} for name, (changes, _, _) in MODELS.items()},
    **{f"models/{_slug(name)}": published["config"] for name, published in PUBLISHED.items()},
}


def started(fact: Fact) -> Start | None:
    """The start of a row that says "works"; None if it says otherwise, has no settings, or its line has no engine."""
    if not fact.typed or (HERE[fact.here] == "error" and not fact.param):
        return None
    environ = environment(fact)
    line = fact.line or _default_line(environ, fact.model)
    if line in FRAMEWORKS and (fact.env or {}).get("VLLM_NEURON_FRAMEWORK") == "transformers-neuronx":
        line = f"{line}-tnx"
    requests = (dict(fact.request),) if fact.request and not fact.param else ()
    started_here = line in ENGINES or line in SERVED
    return Start(fact.number, line, fact.instance, fact.model, environ, requests) if started_here else None


@cache
def recorded() -> Mapping[str, Mapping[str, Any]]:
    """What `make test-starts` has started: the digest of the settings -> number, line, and tokens of the answers."""
    found: Mapping[str, Mapping[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))["starts"]
    return found


def _default_line(environ: Mapping[str, str], model: str) -> str:
    config = load(environ, model=model, fetch=lambda location: None)
    instance = find_for_plan(config.instance) if config.instance else None
    return default_line(config, instance, {})


@cache
def starts() -> tuple[Start, ...]:
    """Every start, each set of settings once."""
    found: dict[str, Start] = {}
    commands = (start for start, rejected in of_commands() if not rejected)
    for start in (*_of_guides(), *_of_recipes(), *_of_lines(), *commands):
        same = found.get(start.settings)
        requests = (*same.requests, *start.requests) if same else start.requests
        found[start.settings] = replace(same or start, requests=requests)
    return tuple(found.values())


def _of_guides() -> Iterator[Start]:
    for fact in facts():
        start = started(fact)
        if start is not None:
            yield start


def of_commands() -> Iterator[tuple[Start, str]]:
    """What `neuron-endpoint translate` makes of the guides' commands, variables and calls, as far as it is whole.

    The second is the setting that `check` rejects it by, or "".
    """
    for cases, (guide, line, instance) in zip(COMMANDS.values(), COMMAND_LINES, strict=True):
        for number, case in enumerate(cases):
            if "settings" not in case or "errors" in case:
                continue
            made = translated(read_text(case["text"]))
            environ = {name: given.text for name, given in made.given.items()}
            model_name = made.config.source("model").name
            if environ.get(model_name, "").startswith("/"):
                environ[model_name] = "models/405b"
            model = environ.get(model_name, "models/llama")
            environ |= {"ENDPOINT_INSTANCE": instance, **({"ENDPOINT_LINE": line} if line else {})}
            found = line or _default_line(environ, model)
            yield Start(f"command {guide}-{number + 1}", found, instance, model, environ), case.get("rejected", "")


def _of_recipes() -> Iterator[Start]:
    for file in FILES:
        recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
        if recipe["line"] in ENGINES:
            environ = {"ENDPOINT_CONFIG": str(file.relative_to(ROOT))}
            if "speculative_model" in recipe:
                environ["ENDPOINT_SPECULATIVE_MODEL"] = f"models/{_slug(recipe['speculative_model'])}"
            if "quantized_checkpoints_path" in recipe:
                environ["ENDPOINT_QUANTIZED_CHECKPOINTS_PATH"] = "/q"
            model = f"models/{_slug(recipe['model'])}"
            yield Start(f"recipe {file.stem}", recipe["line"], recipe["instance"], model, environ)


def _of_lines() -> Iterator[Start]:
    """The settings that the page says are supported, on each of their lines."""
    for lines, where in re.findall(
        r"^\| (`[^|]+) \| ([^|]+) \|", SETTINGS_PAGE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        setting = re.fullmatch(r"`(ENDPOINT_\w+)=(\w+)`", where)
        for line in re.findall(r"`([\w.-]+)`", lines) if setting or where == "by default" else ():
            if line in ENGINES:
                instance = INSTANCES.get(line, "")
                environ = {"ENDPOINT_LINE": line, **({"ENDPOINT_INSTANCE": instance} if instance else EAGER)}
                environ |= {setting[1]: setting[2]} if setting else {}
                yield Start(f"lines {line} {where.strip('`')}", line, instance, "models/llama", environ)
