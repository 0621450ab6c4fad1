"""Asks the installed vLLM about every engine argument, one value at a time, and writes what it rejects.

    python -m tests.argument_verdicts            # writes handler/config/vllm_arguments/verdicts/<version>.json
    python -m tests.argument_verdicts --resume   # goes on with one that was interrupted
    python -m tests.argument_verdicts --only convert,seed   # prints the verdicts on some (--write: writes)

A value goes through vLLM's own parser and configuration, beside the arguments of a plan without settings for the sample
model. Each is asked in a copy of the process, because vLLM keeps what some have set (0.32.0 then rejects others).
What is rejected is tried again beside each of some companions. Where one makes it accepted, the table says so.
It asks on vLLM's CPU platform, and on versions of a Neuron line on a platform that is no CPU, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import sample_model
from handler.config.fields import fields
from handler.config.vllm_argument_table import known, versions
from handler.config.vllm_verdicts import EXPERTS, VERDICTS, tried_class
from handler.json_value import mapping
from tests.installed_vllm import version as installed_version

ROOT: Final = Path(__file__).parents[1]
NEURON: Final = {"0.11.0": "optimum", "0.16.0": "nxdi", "0.24.0": "native", "0.29.0": "native"}
LINES: Final = {"0.11.0": "optimum", "0.16.0": "nxdi-0.16", "0.24.0": "native-0.24", "0.29.0": "native-0.29"}
# Served on a CPU by tests only: the platform is not asked.
WITHOUT_CPU: Final = ("0.11.0",)
# Arguments whose verdict depends on numbers of others, on the model or on the machine. They have rules of their own, as
# have those that are fields of the endpoint's configuration. What the parser says of their own values holds.
LEFT_OUT: Final = frozenset(
    (
        *("kv_transfer_config.kv_connector", "kv_transfer_config.kv_role", "speculative_config.model"),
        *("ec_transfer_config.ec_connector", "ec_transfer_config.ec_role"),
        *("tokenizer", "hf_config_path", "default_mm_loras", "distributed_executor_backend", "max_num_batched_tokens"),
        *("nnodes", "node_rank", "data_parallel_size_local", "decode_context_parallel_size"),
        *("data_parallel_rank", "data_parallel_external_lb"),
        *(
            "data_parallel_start_rank",
            "prefill_context_parallel_size",
            "numa_bind",
            "numa_bind_nodes",
            "numa_bind_cpus",
        ),
        *("device_ids", "dcp_kv_cache_interleave_size", "cp_kv_cache_interleave_size"),
        *("mamba_block_size", "per_request_spec_decode_metrics"),
    )
)
# vLLM's messages on a key's own value, whatever is beside it.
OF_VALUE: Final = re.compile(
    r"Input should|Input is not|Unexpected keyword|invalid parse_dataclass|Expected a string|Invalid syntax"
    r"|\.literal\[|not a valid argument|only applicable when|cannot be 0"
)
# The texts that are right, where no error of the parser lists them: vLLM's own check does, or vLLM's registry.
WORDS: Final = {"data_parallel_backend": ["mp", "ray"], "config_format": ["auto", "hf", "mistral"]}
# Those by which no text at all is accepted.
NO_TEXT: Final = re.compile(
    r"Input should be (a valid|an object|\d)|Invalid version|is not supported|unable to (parse|interpret)"
    r"|invalid \w+ value|Unexpected keyword|not a valid argument|only applicable when|is not JSON"
)
NUMBERS: Final = (-1, 0, 1, 2, 3, 16, 128, 4096, 0.5)
UNKNOWN: Final = ("unknown-word", "/nowhere/unknown")
# Texts that spell a number or a switch. vLLM reads some of them as that.
SPELLED: Final = ("1", "2", "true")
EVERY: Final[tuple[object, ...]] = (True, False, -1, 0, 1, 2, 128, *UNKNOWN, *SPELLED, ["a"], {})
# Numbers of which vLLM has a list: those in its message are right, tried or not. And names that a plugin of the user
# may add to vLLM's list.
LISTED: Final = re.compile(r"Input should be \d")
# The whole list of the texts that a key takes, also where each of them needs another key. `message` shortens long ones.
QUOTED: Final = re.compile(r"Input should be '.+'(?!.*\.\.\.$)")
PARSERS: Final = "Available parsers"
PLUGIN: Final = {"reasoning_parser_plugin": "text"}
# Objects that need some keys before vLLM reads the others, and the class of those that are only typed as objects.
CONTENT: Final[Mapping[str, dict[str, Any]]] = {
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2},
    "watermark_config": {"key": 1},
}
CLASSES: Final = {"speculative_config": "SpeculativeConfig", "watermark_config": "WatermarkConfig"}
COMPANIONS: Final[tuple[dict[str, Any], ...]] = (
    {EXPERTS: True},
    {EXPERTS: True, "enable_expert_parallel": True, "tensor_parallel_size": 2},
    {"tensor_parallel_size": 2},
    {"data_parallel_size": 4},
    {"data_parallel_size": 2, "data_parallel_rank": 0},
    {"data_parallel_size": 2, "data_parallel_rank": 1},
    {"data_parallel_size": 2, "data_parallel_size_local": 1},
    {"data_parallel_size": 4, "data_parallel_size_local": 2},
    {"decode_context_parallel_size": 2, "tensor_parallel_size": 8},  # more than the sample model's KV heads
    {"offload_group_size": 2},
    {"mamba_ssm_cache_dtype": "float16"},
    {"spec_method": "ngram"},
    {"spec_model": str(sample_model.path())},
    {"nnodes": 2},
    {"enable_lora": True},
    {"enable_prefix_caching": True, "enable_chunked_prefill": True, "block_size": 32},
    {"enable_prefix_caching": False, "enable_chunked_prefill": False},
    {"max_num_batched_tokens": 8192},
    {"runner": "pooling"},
    {"speculative_config": CONTENT["speculative_config"]},
    {"kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}},
    {"otlp_traces_endpoint": "http://127.0.0.1:4317"},
    {"profiler_config.profiler": "torch", "profiler_config.torch_profiler_dir": "/tmp"},
    {"profiler_config.profiler": "torch"},
    {"profiler_config.torch_profiler_dir": "/tmp"},
    {"kv_transfer_config.kv_connector": "NixlConnector", "kv_transfer_config.kv_role": "kv_both"},
    {"kv_transfer_config.kv_role": "kv_both"},
    {"ec_transfer_config.ec_connector": "ECExampleConnector", "ec_transfer_config.ec_role": "ec_both"},
    {"ec_transfer_config.ec_role": "ec_both"},
    {"mamba_backend": "flashinfer"},
    {"structured_outputs_config.backend": "guidance"},
    {"structured_outputs_config.backend": "xgrammar"},
    {"profiler_config.profiler": "proton", "profiler_config.proton_profiler_dir": "/tmp"},
    {EXPERTS: True, "enable_eplb": True, "enable_expert_parallel": True, "tensor_parallel_size": 2},
)
# Companions of which another value of the same class does not do.
CHOSEN: Final = (
    "profiler_config.profiler",
    "structured_outputs_config.backend",
    "runner",
    "mamba_backend",
    "mamba_ssm_cache_dtype",
)


def candidates(name: str) -> Iterator[Any]:
    """Values of an argument as `check` would read them from a setting."""
    argument = known()[name]
    kind = argument.item if argument.kind == "list" else argument.kind
    values: tuple[Any, ...] = {
        "bool": (True, False),
        "int": tuple(number for number in NUMBERS if isinstance(number, int)),
        "float": tuple(map(float, NUMBERS)),
        "str": (*UNKNOWN, *(("auto",) if name == "attention_backend" else ()), *SPELLED[:2]),
        "json": ({}, {"unknown_key": 1}, *UNKNOWN, *SPELLED, [1], True, *NUMBERS),
    }[kind]
    values = argument.by_version[installed_version()] or values
    yield from ([value] for value in values) if argument.kind == "list" else values


def words(annotation: Any) -> Iterator[str | int]:
    """The texts and numbers of an annotation's literals, and the texts of its enumerations."""
    if sys.version_info >= (3, 12) and isinstance(annotation, typing.TypeAliasType):
        annotation = annotation.__value__
    if typing.get_origin(annotation) is typing.Literal:
        yield from (value for value in typing.get_args(annotation) if isinstance(value, str | int))
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        yield from (spelling for member in annotation.__members__ for spelling in (member, member.lower()))
        yield from (member.value for member in annotation if isinstance(member.value, str))
    else:
        for part in typing.get_args(annotation):
            yield from words(part)


def dataclass_of(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return annotation
    parts = typing.get_args(annotation) if isinstance(typing.get_origin(annotation), type) or _union(annotation) else ()
    return next((found for part in parts if (found := dataclass_of(part)) is not None), None)


def _union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated)


def hints(owner: Any) -> dict[str, Any]:
    """The annotations that can be resolved."""
    try:
        return typing.get_type_hints(owner)
    except Exception:
        return {one.name: one.type for one in dataclasses.fields(owner)}


class Questions:
    """Asks the vLLM of this process."""

    def __init__(self, line: str) -> None:
        from handler.config.loading.config_loader import load
        from handler.neuron.checkpoint.model_facts import facts_from
        from handler.neuron.hardware.current_machine import this_machine
        from handler.neuron.planning.planner import make_plan

        self.prepare()
        model = json.loads((sample_model.path() / "config.json").read_text())
        platform = "ml.trn1.32xlarge" if line == "optimum" else "ml.trn2.48xlarge"
        instance = {} if line == "cpu" else {"ENDPOINT_INSTANCE": platform}
        config = load({"ENDPOINT_LINE": line, "SM_VLLM_TENSOR_PARALLEL_SIZE": "1", **instance})
        plan = make_plan(config, facts_from(model, config.model, True, None, 10_000_000), this_machine(config)).plan
        assert plan is not None
        self.directory = tempfile.mkdtemp()
        experts = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4}
        Path(self.directory, "config.json").write_text(json.dumps({**model, **experts, "num_experts_per_tok": 2}))
        self.base = {**plan.engine_args, "model": str(sample_model.path())}

    def prepare(self) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs

        from handler.engine.engine_client.engine_arguments import _SettingsParser
        from handler.engine.engine_client.model_inspection import inspect_here

        def expired(*_: Any) -> None:
            raise TimeoutError("it waits for something else")

        signal.signal(signal.SIGALRM, expired)
        inspect_here()
        self.parser = _SettingsParser(prog="serve", add_help=False, allow_abbrev=False)
        AsyncEngineArgs.add_cli_args(self.parser)
        self.options = {option for action in self.parser._actions for option in action.option_strings}
        self.asked, self.parsed, self.seconds = 0, False, 30
        self.import_what_an_answer_does()

    def import_what_an_answer_does(self) -> None:
        """Imports here what each copy would import again: 0.5 s of some questions."""

        def modules(whole: Mapping[str, Any]) -> list[str]:
            self.configure(whole)
            return list(sys.modules)

        environment = dict(os.environ)
        for name in in_a_copy(modules, {"model": str(sample_model.path())}):
            if name not in sys.modules:
                with contextlib.suppress(ImportError):  # a name that its package makes up
                    importlib.import_module(name)
        os.environ.clear()
        os.environ.update(environment)

    @classmethod
    def of_process(cls) -> Questions:
        """For whole configurations, without a plan."""
        questions = cls.__new__(cls)
        questions.prepare()
        return questions

    def error(self, arguments: Mapping[str, Any]) -> str | None:
        """Why vLLM rejects arguments beside those of the plan; None if it accepts them."""
        why: str | None
        self.parsed, why = in_a_copy(self._ask, arguments)
        self.asked += 1
        return why

    def _ask(self, arguments: Mapping[str, Any]) -> tuple[bool, str | None]:
        whole = dict(self.base)
        for name, value in arguments.items():
            outer, _, key = name.partition(".")
            if name == EXPERTS:
                whole.update(model=self.directory, skip_tokenizer_init=True)
            elif key:
                whole[outer] = {**mapping(whole.get(outer)), key: value}
            else:
                whole[name] = value
        _, why = self.configure(whole)
        return self.parsed, why

    def configure(self, whole: Mapping[str, Any]) -> tuple[Any, str | None]:
        """vLLM's configuration of engine arguments, or why it rejects them."""
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext

        from handler.engine.headless_node import option_words

        environment = dict(os.environ)
        self.parsed = False
        signal.alarm(self.seconds)
        try:
            options = [option_words(name, value) for name, value in whole.items()]
            argv = [word for said in options for word in said if said[0][:5] != "--no-" or said[0] in self.options]
            arguments = AsyncEngineArgs.from_cli_args(self.parser.parse_args(argv))
            self.parsed = True
            return arguments.create_engine_config(UsageContext.OPENAI_API_SERVER), None
        except (Exception, SystemExit) as error:
            return None, message(error)
        finally:
            signal.alarm(0)
            os.environ.clear()
            os.environ.update(environment)

    def verdicts(self, name: str, values: list[Any], wrap: Any = lambda value: value) -> dict[str, Any]:
        """What is rejected of some values of an argument, or of a key of it."""
        outer = name.split(".")[0]
        errors: dict[str, str | None] = {}
        parsed: set[str] = set()
        for value in values:
            errors[json.dumps(value)] = self.error({outer: wrap(value)})
            if self.parsed:
                parsed.add(json.dumps(value))
        classes: dict[str, list[Any]] = {}
        for value in values:
            classes.setdefault(tried_class(value), []).append(value)
        rejected: dict[str, str] = {}
        needs: dict[str, list[dict[str, str]]] = {}
        accepted: list[str] = []
        for kind, members in classes.items():
            wrong = [value for value in members if errors[json.dumps(value)] is not None]
            right = [value for value in members if value not in wrong]
            unknown = [value for value in UNKNOWN if value in members and value in wrong]
            if kind == "text" and unknown and len(unknown) == sum(value in members for value in UNKNOWN):
                rejected[kind] = str(errors[json.dumps(unknown[0])])
                accepted += right
                keyed = {kind: unknown[:1]}
                keyed.update({json.dumps(value): [value] for value in wrong if value not in UNKNOWN})
            elif wrong and (not right or LISTED.search(str(errors[json.dumps(wrong[0])]))):
                keyed = {kind: wrong}
                accepted += right
            else:
                keyed = {json.dumps(value): [value] for value in wrong}
            for key, tried in keyed.items():
                rejected[key] = str(errors[json.dumps(tried[0])])
                # Of many names that this platform does not have, none is right beside another argument.
                reasons = {errors[json.dumps(value)] for value in wrong}
                several = (kind == "text" and len(reasons) > 4) or outer in CLASSES
                # What is no object is none beside other arguments either.
                several |= name == outer and known()[name].kind == "json" and not isinstance(tried[0], dict)
                met = [] if several else self.met(name, tried, wrap, json.dumps(tried[0]) in parsed)
                if PARSERS in rejected[key] and name.endswith("reasoning_parser"):
                    met, accepted = [PLUGIN], reasoning_parsers()
                if met:
                    needs[key] = met
        return {key: value for key, value in (("rejected", rejected), ("needs", needs), ("words", accepted)) if value}

    def met(self, name: str, tried: list[Any], wrap: Any, parsed: bool) -> list[dict[str, str]]:
        """The companions beside which one of the values is accepted, without those that contain another.

        :param parsed: vLLM's parser has read the value, so other arguments may make it right.
        """
        found: list[dict[str, str]] = []
        outer = name.split(".")[0]
        for companion in COMPANIONS if outer not in LEFT_OUT else ():
            inner = {key: value for key, value in companion.items() if key.startswith(f"{outer}.")}
            nested = any("." in key for key in companion.keys() - {EXPERTS})
            if name in companion or (nested and not inner) or not (inner or parsed):
                continue
            need = {key: json.dumps(value) if key in CHOSEN else tried_class(value) for key, value in companion.items()}
            if any(one.items() <= need.items() for one in found):
                continue
            beside = {key: value for key, value in companion.items() if key not in inner}
            for value in tried[:1]:
                whole = wrap(value)
                if inner and not isinstance(whole, dict):
                    continue
                if inner:
                    whole = {**{key.partition(".")[2]: one for key, one in inner.items()}, **whole}
                if self.error({**beside, outer: whole}) is None:
                    found.append(need)
                    break
        return found

    def required(self, name: str) -> list[str]:
        """The key without which vLLM rejects an object."""
        return re.findall(r"^(\w+): Field required", self.error({name: {}}) or "")

    def nested(self, name: str, cls: Any, wrap: Any, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
        """The keys of an object, and the verdicts on their values."""
        outer = name.split(".")[0]
        annotations = hints(cls)
        names = [one.name for one in dataclasses.fields(cls) if one.init and not one.name.startswith("_")]
        if "unknown_key" in (self.error({outer: wrap({"unknown_key": 1})}) or ""):
            yield name, {"keys": names}
        for key in names:
            annotation = annotations.get(key)
            inner = dataclass_of(annotation)

            def wrapped(value: Any, key: str = key) -> Any:
                return wrap({key: value})

            if inner is not None and depth < 2 and outer not in CLASSES:
                yield from self.nested(f"{name}.{key}", inner, wrapped, depth + 1)
            values = [*EVERY, *dict.fromkeys(words(annotation))]
            tried = key not in CONTENT.get(outer, ()) or key in self.required(outer)
            if tried and not key.startswith(("target_", "draft_model_config")):
                found = self.verdicts(f"{name}.{key}", values, wrapped)
                if found:
                    yield f"{name}.{key}", found


def in_a_copy(ask: Callable[[Mapping[str, Any]], Any], arguments: Mapping[str, Any]) -> Any:
    """Calls a function in a fork of this process, and returns its result, which JSON can hold."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, json.dumps(ask(arguments)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        result = answer.read()
    os.waitpid(child, 0)
    return json.loads(result)


def reasoning_parsers() -> list[str]:
    from vllm.reasoning import ReasoningParserManager

    return sorted(ReasoningParserManager.list_registered())


def message(error: BaseException) -> str:
    """The first sentence of vLLM's message, without what differs between two runs."""
    text = str(error) or type(error).__name__
    if re.search("Invalid JSON|cannot be converted to <function loads", text):
        return "it is not JSON"
    said = re.search(r"Value error, (.+?)(?: \[type=|$)", text, re.S) or re.search(
        r"msg='(?:Value error, )?(.+?)'", text
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if said is None and len(lines) > 2 and "validation error" in lines[0]:
        parts = [line.partition(" [type=")[0] for line in lines[1:3]]
        text = parts[0] if " [type=" in lines[1] else ": ".join(parts)
    elif said is not None:
        text = said[1]
    text = re.sub(r"/tmp/\S+|0x[0-9a-f]+|/\S+/site-packages/\S+", "...", " ".join(text.split()))
    return text if len(text) <= 160 else f"{text[:157]}..."


def journal_path(line: str) -> Path:
    """A line of JSON for each argument that was asked about, by the version of vLLM that is installed."""
    return ROOT / f"build/argument-verdicts/{installed_version()}-{line}.jsonl"


def ask(line: str, only: str = "") -> dict[str, Any]:
    """The verdicts of the platform that this process has, on all arguments or on those that are named."""
    import vllm.config
    from vllm.engine.arg_utils import EngineArgs

    questions = Questions(line)
    wrong = questions.error({})
    assert wrong is None, wrong
    annotations = hints(EngineArgs)
    journal = journal_path(line)
    asked = dict(map(json.loads, journal.read_text().splitlines())) if not only and journal.exists() else {}
    for name in only.split(",") if only else sorted(known()):
        if installed_version() not in known()[name].versions or name in fields() or name in asked:
            continue
        table: dict[str, dict[str, Any]] = {}
        found_words = words(annotations.get(name)) if known()[name].kind == "str" else ()
        values = (
            [*dict.fromkeys([*candidates(name), *found_words])]
            if known()[name].kind not in ("json", "list")
            else [*candidates(name)]
        )
        print(f"{line}: {questions.asked} {name}", file=sys.stderr)
        questions.seconds = 2 if name in LEFT_OUT else 30
        verdicts = questions.verdicts(name, values)
        cls = getattr(vllm.config, CLASSES.get(name, ""), None) or dataclass_of(annotations.get(name))
        if cls is not None:
            content = CONTENT.get(name, {})
            for key, inner in questions.nested(name, cls, lambda value, content=content: {**content, **value}):
                table.setdefault(key, {}).update(inner)
        elif known()[name].kind == "json" and name not in LEFT_OUT:
            row = questions.verdicts(f"{name}.*", [*EVERY], lambda value: {"unknown_key": value})
            table.update({f"{name}.*": row} if row else {})
        required = questions.required(name)
        verdicts |= {"required": required} if required else {}
        if verdicts:
            table[name] = {**verdicts, **table.get(name, {})}
        asked[name] = table
        if not only:
            with journal.open("a") as file:
                print(json.dumps((name, table)), file=file)
    print(f"{line}: {questions.asked} questions", file=sys.stderr)
    return general({key: row for table in asked.values() for key, row in table.items()})


def general(table: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Without single numbers and objects: other values of their class were accepted, or may be.

    And without what may be right beside other keys of its object: a message that speaks of more than the value.
    """
    kept: dict[str, Any] = {}
    for name, row in sorted(table.items()):
        if name in fields():
            continue
        quoted = QUOTED.search(row.get("rejected", {}).get("text", ""))
        if quoted:
            row = {**row, "words": row.get("words") or re.findall(r"'([^']+)'", quoted[0])}
        listed = next((why for why in row.get("rejected", {}).values() if LISTED.search(why)), "")
        numbers = dict.fromkeys(int(digits) for digits in re.findall(r"\d+", listed) if int(digits) > 1)
        if "words" in row and (more := [number for number in numbers if number not in row["words"]]):
            row = {**row, "words": [*row["words"], *more]}
        if name in WORDS:
            row = {**row, "words": row.get("words", WORDS[name])}
        rejected = {key: why for key, why in row.get("rejected", {}).items() if holds(name, key, why, row)}
        row = {**row, "rejected": rejected, "needs": {k: v for k, v in row.get("needs", {}).items() if k in rejected}}
        row = {key: value for key, value in row.items() if value}
        if row.keys() & {"rejected", "keys", "required"}:
            kept[name] = row
    return kept


def holds(name: str, key: str, why: str, row: Mapping[str, Any]) -> bool:
    """Whether a rejection is that of the whole class, and of the value alone.

    Of texts a few were tried. Others may be right, unless those that are right are known or a text never is.
    """
    if name in LEFT_OUT and not OF_VALUE.search(why):
        return False
    is_text = key.startswith("text")
    chosen = "." not in name and known()[name].by_version[installed_version()] and row.get("needs", {}).get(key)
    every_text = "words" in row or chosen
    if is_text and not every_text:
        return bool(NO_TEXT.search(why)) or ("." in name and bool(row.get("needs", {}).get(key)))
    if "." in name and not is_text and not OF_VALUE.search(why) and not row.get("needs", {}).get(key):
        return False
    return (
        is_text
        or key[0] in '"<>['
        or key in ("true", "false", "0", "1", "fraction")
        or (key == "object" and "." in name)
    )


def text(tables: Mapping[str, Any]) -> str:
    """One line an argument, so that a version's differences can be read."""
    parts = [f'  "vllm": {json.dumps(tables["vllm"])}']
    for platform in ("neuron", "cpu"):
        rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in tables[platform].items())
        parts.append(f'  "{platform}": {{\n{rows}\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    only = sys.argv[2] if sys.argv[1:2] == ["--only"] else ""
    resume = sys.argv[1:2] == ["--resume"]
    if len(sys.argv) > 1 and not (only or resume):
        with contextlib.redirect_stdout(sys.stderr):
            table = ask(sys.argv[1], sys.argv[3])
        Path(sys.argv[2]).write_text(json.dumps(table))
        return
    version = installed_version()
    assert version in versions()
    tables: dict[str, Any] = {"vllm": version}
    sys.path.insert(0, str(ROOT / "tests/neuron_stand_in"))
    from neuron_stand_in.installation import installed

    with tempfile.TemporaryDirectory() as directory:
        tables |= {"neuron": {}, "cpu": {}}
        asked: dict[str, subprocess.Popen[bytes]] = {}
        of_cpu = [] if version in WITHOUT_CPU else [("cpu", "cpu")]
        for platform, line in ([("neuron", LINES[version])] if version in LINES else []) + of_cpu:
            switch = {"NEURON_STAND_IN": f"{NEURON[version]}-configuration"} if platform == "neuron" else {}
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith("NEURON")},
                **{"VLLM_LOGGING_LEVEL": "CRITICAL", "HF_HUB_OFFLINE": "1"},
                **(installed(Path(directory)) if switch else {}),
                **switch,
            }
            answer, journal = Path(directory, f"{platform}.json"), journal_path(line)
            if not resume:
                journal.unlink(missing_ok=True)
            journal.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "tests.argument_verdicts", line, str(answer), only]
            asked[platform] = subprocess.Popen(command, cwd=ROOT, env=environment)
        for platform, process in asked.items():
            if process.wait():
                raise SystemExit(f"The verdicts of {platform} ended with {process.returncode}.")
            tables[platform] = json.loads(Path(directory, f"{platform}.json").read_text())
    if "--write" in sys.argv:
        written = json.loads((VERDICTS / f"{version}.json").read_text())
        for platform in ("neuron", "cpu"):
            rows = written[platform].items()
            others = {name: row for name, row in rows if name.partition(".")[0] not in only.split(",")}
            tables[platform] = dict(sorted({**others, **tables[platform]}.items()))
    elif only:
        print("|" + text(tables), end="")
        return
    VERDICTS.mkdir(exist_ok=True)
    (VERDICTS / f"{version}.json").write_text(text(tables))
    print(f"{VERDICTS / version}.json: {len(tables['neuron'])} and {len(tables['cpu'])} arguments and keys")


if __name__ == "__main__":
    main()
