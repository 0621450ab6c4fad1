"""Reads commands, variables, Python scripts and `serving.properties`. They are parsed, and never run.

Sources: vLLM 0.16, utils/argparse_utils.py; NxD Inference, inference_demo.py; optimum-neuron, commands/neuron/serve.py.
"""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from handler.config.assignment import converted
from handler.config.dialects.vllm_names import canonical, is_known
from handler.config.fields import fields, saved_keys
from handler.config.finding import Severity
from handler.config.loading.line_formats import parse_properties
from handler.config.problems import BadValue
from handler.config.values import clean, parse_json, plain
from handler.config.vllm_argument_table import known
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.neuron_config.keys import KEYS
from model_packaging.translation.translation import Given, Read, note

# All of vLLM 0.16 to 0.32 (engine/arg_utils.py, entrypoints/openai/cli_args.py).
_SHORT = """tp=tensor_parallel_size pp=pipeline_parallel_size dp=data_parallel_size q=quantization m=model n=nnodes
    cc=compilation_config ac=attention_config r=node_rank ep=enable_expert_parallel O=optimization_level
    dpn=data_parallel_rank dpr=data_parallel_start_rank dpl=data_parallel_size_local dpa=data_parallel_address
    dpp=data_parallel_rpc_port dpb=data_parallel_backend dph=data_parallel_hybrid_lb dpe=data_parallel_external_lb
    dpm=data_parallel_multi_port_external_lb dcp=decode_context_parallel_size pcp=prefill_context_parallel_size
    sc=speculative_config dc=diffusion_config asc=api_server_count"""
SHORT: Final = {f"-{name}": argument for name, _, argument in (pair.partition("=") for pair in _SHORT.split())}
# The flags of vLLM's HTTP server, whose table has names only, and of optimum-neuron.
FLAGS: Final = re.compile(r"(en|dis)able_(?!access_log_for)|allow_|headless|tokens_only|log_error")
# Options of inference_demo that are neither keys of its NeuronConfig nor names of fields.
DEMO_FIELDS: Final = {
    **{"model_path": "model", "compiled_model_path": "compiled_artifacts", "draft_model_path": "speculative_model"},
    **{"logical_neuron_cores": "logical_nc_config", "target_modules": "lora_target_modules"},
}
DOCKER_FLAGS: Final = re.compile(
    r"-[ditPq]+|--(detach|init|interactive|privileged|publish-all|read-only|rm|tty|no-healthcheck)"
)
# What stands before a command: a variable, or a program that runs another one.
WRAPPER: Final = re.compile(r"[A-Za-z_]\w*=.*|sudo|env|nohup|time|exec|export|[$!]", re.DOTALL)
# Files of a shell that set up its programs, and no model.
OWN_FILE: Final = re.compile(r"(^|/)(activate|\.\w*(rc|profile))$")
FILE: Final = ("it is a file, and files are not read", "Translate that file, too.")
ENV_LINE: Final = re.compile(r"([A-Za-z_]\w*)=([{\[].*|\S*|\"[^\"]*\"|'[^']*')")
QUOTED: Final = re.compile(r"\A([\"'])(.*)\1\Z", re.DOTALL)
# Quoted text or an escaped character; the output of a command; what is left out; the end of a command.
SHELL: Final = re.compile(
    r"""('[^']*+'|"(?:\\.|[^"\\])*+"|\\[^\r\n \t])|(\$\([^)]*+\)?|`[^`]*+`?)|"""
    r"((?<!\S)\#[^\n]*|\d?>+&?\s*[^\s;&|]*|\\[ \t]*\r?\n)|[\n;&|]+",
    re.DOTALL,
)
# The words that a command begins with. The name of the group is what the variables of its options begin with.
PROGRAM: Final = re.compile(
    r"!?(?:(?P<SM_VLLM_>(?:\S*/)?(?:vllm(?:-rs)? serve|python[\d.]* (?:-\w )*-m vllm\.\S*(?:api_server|main serve)))|"
    r"(?P<SM_ON_>(?:\S*/)?optimum-cli neuron serve)|"
    r"(?P<DEMO>(?:\S*python[\d.]* (?:-\w )*)?\S*inference_demo(?:\.py)?))(?!\S)|(?=--)"
)
# What tells the kinds of text from each other.
PROPERTIES: Final = re.compile(r"(?im)^[ \t]*(option\.[\w.-]+[ \t]*[=:]|engine[ \t]*=[ \t]*(python|mpi)\b)")
SCRIPT: Final = re.compile(
    r"(?m)^[ \t]*((import|from|def) +\w|[a-z_]+ *= *(\{|dict\()|[^'\"\n-]*\b(LLM|\w*EngineArgs|NeuronConfig)\()"
)
# Classes of vLLM whose keyword arguments are settings, and classes that are not read.
CLASSES: Final = ("LLM", "EngineArgs", "AsyncEngineArgs")
UNREAD: Final = {"SamplingParams": Severity.INFO, "NeuronConfig": Severity.ERROR}


def read_text(text: str) -> Iterator[Read]:
    """Reads what a user has pasted, or the text of a file. A SettingError says why that cannot be done."""
    stripped = (line.strip() for line in converted(clean, text, "the input").splitlines())
    lines = [line for line in stripped if line and not line.startswith("#")]
    if PROPERTIES.search(text):
        for key, value in converted(parse_properties, text, "the input").items():
            _, dot, name = key.rpartition("option.")
            yield Given(key, f"{'OPTION' if dot else 'SERVING'}_{name.upper()}", value)
    elif SCRIPT.search(text):
        yield from _read_script(text)
    elif len(matches := [match for line in lines if (match := ENV_LINE.fullmatch(line))]) == len(lines):
        yield from (_variable(match[1], QUOTED.sub(r"\2", match[2])) for match in matches)
    else:
        shell: dict[str, str] = {}
        for words in _commands(text):
            # Variables that the text itself sets are replaced, some in a word: they could double with each line.
            texts = (
                re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda name: shell.get(name[1] or name[2], name[0]), word, count=16)
                for word in words
            )
            yield from _command(deque(texts), shell)


def _commands(text: str) -> list[list[str]]:
    joined = SHELL.sub(lambda match: match[1] or ("'$'" if match[2] else " " if match[3] else "\0"), text)
    try:
        return [shlex.split(command) for command in joined.split("\0")]
    except ValueError:
        raise SettingError("the command", "has a quotation mark that is not closed", "Paste all of it.") from None


def _command(words: deque[str], shell: dict[str, str]) -> Iterator[Read]:
    prompt = True  # guides print one: `$ vllm serve ...`
    while words and WRAPPER.fullmatch(words[0]):
        name, equals, value = words.popleft().partition("=")
        if name == "$" and not prompt:  # env $(cat file), export $(cat file)
            yield note(Severity.ERROR, "$(...)", "it may set variables, and commands are not run", "Write them out.")
        prompt = False
        if equals:
            shell[name] = value if len(value) < 4096 else "$"
            yield _variable(name, value)
    if re.match(r"(docker|podman|nerdctl) (container )?run ", _line(words)):
        yield from _container(words)
    elif PROGRAM.match(_line(words)):
        yield from _options(words, "SM_VLLM_")
    elif words and words[0] in ("source", ".") and not OWN_FILE.search(words[-1]):
        yield note(Severity.ERROR, words[0], *FILE)
    elif words:
        yield note(Severity.INFO, words[0], "it is a command that serves no model, and commands are not run")


def _line(words: Iterable[str]) -> str:
    """The words with spaces between them, and none within: a quoted `vllm serve` is one word, and no command."""
    return " ".join(word.replace(" ", "\0") for word in words)


def _variable(name: str, value: str) -> Read:
    if "$" in value:
        return note(Severity.INFO, name, "its value is the shell's own", "Set it in the endpoint's environment.")
    return Given(name, name, value)


def _container(words: deque[str]) -> Iterator[Read]:
    words = deque([*words][words.index("run") + 1 :])
    while words and words[0].startswith("-"):
        option, equals, value = words.popleft().partition("=")
        if DOCKER_FLAGS.fullmatch(option):
            continue
        option = re.sub(r"^-[ditPq]+(?=[A-Za-z])", "-", option)  # -dp 8080:80
        if re.match(r"-\w.", option):  # -eNAME=value
            option, value = option[:2], option[2:] + equals + value
        elif not equals:
            value = words.popleft() if words else ""
        name, equals, value = value.partition("=")
        if option in ("-e", "--env"):
            yield _variable(name, value if equals else "$")
        elif option == "--env-file":
            yield note(Severity.ERROR, f"docker run {option}", *FILE)
        else:
            yield note(Severity.INFO, f"docker run {option}", "it is the container's; a file in it is not read")
    image = words.popleft() if words else ""
    if words and words[0].rpartition("/")[2] in ("bash", "sh"):
        why = "its command is a shell's, whose text is not read"
        yield note(Severity.ERROR, "docker run", why, "Translate the text after -c, too.")
        return
    yield from _options(words, "SM_ON_" if "optimum" in image else "SM_VLLM_")


def _options(words: deque[str], prefix: str) -> Iterator[Read]:
    """The settings of a command's options, as argparse and vLLM's own parser read them."""
    match = PROGRAM.match(_line(words))
    for _ in match[0].split() if match else ():
        words.popleft()
    prefix = (match and match.lastgroup) or prefix
    positional = "model" if prefix == "SM_VLLM_" else ""
    while words:
        word = re.sub(r"^-O(?=\d)", "-O=", words.popleft())  # vLLM's documentation writes -O3
        option, equals, text = word.partition("=") if re.match(r"-\D", word) else ("", "=", word)
        if not option and word in ("run", "serve"):
            continue
        name = SHORT.get(option) or canonical(option) if option else positional
        values, most = [text] if equals else [], _takes(name)
        while not equals and words and len(values) < most and not re.match(r"-\D", words[0]):
            values.append(words.popleft())
        value: Json = True if not values else [*values] if most > 1 else values[0]
        if not name:
            yield note(Severity.ERROR, "a word", "it belongs to no option", "Check the option before it.")
        elif _needs_value(name) and not "".join(values).strip():
            yield note(Severity.ERROR, option or name, "it needs a value and has none", "Write its value after it.")
        elif set("$`") & set("".join(values)):
            why = "it has a variable or a command of the shell, which is not run"
            yield note(Severity.ERROR, option or name, why, "Write its value out.")
        else:
            value = _value(value) if isinstance(value, str) and value.lstrip().startswith("{") else value
            setting = Given(option or name, f"{prefix}{name.upper()}", value)
            yield _demo(option, name, value) if prefix == "DEMO" else setting
        positional = positional if option else ""


def _value(text: str) -> Json:
    """A value in JSON. Guides print objects with backslashes, or as Python does, which vLLM itself rejects."""
    for spelled in (text, re.sub(r"\\\s*(?=[\"\n])", "", text)):
        with suppress(BadValue):
            return parse_json(spelled)
        with suppress(BadValue, SyntaxError, ValueError, RecursionError, MemoryError):
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(spelled.strip(), mode="eval")
            return _literal(tree.body, {})
    return text


def _takes(name: str) -> float:
    """The most words after an option. It has fewer if another option follows. An unknown one has one."""
    kinds = _kinds(name)
    several = kinds & {"list", "tuple[str, ...]"} or name in ("lora_modules", "target_modules")
    return 0 if "bool" in kinds or FLAGS.match(name) else float("inf") if several else 1


def _needs_value(name: str) -> bool:
    """Whether it is no flag. Of an unknown option, only whoever wrote it knows."""
    kinds = _kinds(name)
    return bool(kinds) and "bool" not in kinds and not FLAGS.match(name)


def _kinds(name: str) -> set[str]:
    return {table[key].kind for table in (known(), KEYS, fields()) if (key := name.removeprefix("no_")) in table}


def _demo(source: str, name: str, value: Any) -> Read:
    """An option of inference_demo: a field, a key of NeuronConfig without one, or neither."""
    key = name.removeprefix("no_")
    value = key == name if value is True else value
    field = {**dict(saved_keys()), **DEMO_FIELDS}.get(key, key if key not in KEYS else "")
    if field in fields():
        return Given(source, f"ENDPOINT_{field.upper()}", value)
    if key not in KEYS:
        return note(Severity.INFO, source, "it is about the demo's own run, a request, an adapter or a file")
    value = [_value(text) for text in value] if isinstance(value, list) else value
    return Given(source, "ENDPOINT_NEURON_CONFIG", {key: _value(value) if isinstance(value, str) else value})


def _read_script(text: str) -> Iterator[Read]:
    """The arguments of the one call that starts a model, or of a fragment of it, and the variables that are set."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f"{error.msg}, line {error.lineno}" if isinstance(error, SyntaxError) else "nested too deep"
        raise SettingError("the script", f"it is not Python ({place})", "Paste whole statements.") from None
    constants = _constants(tree)
    calls: dict[str, ast.Call] = {}
    for node in ast.walk(tree):
        yield from _environment(node, constants)
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                if name in CLASSES and calls.setdefault(name, node) is not node:
                    problem = f"is called in line {calls[name].lineno} and in line {node.lineno}"
                    raise SettingError(name, problem, "Paste the call that you mean.")
                if name in UNREAD:
                    yield note(UNREAD[name], name, "its arguments are none of vLLM's, and are not read")
    for name, call in calls.items():
        values = [("model", argument) for argument in call.args[:1]]
        for key, value in values + [(keyword.arg or "**", keyword.value) for keyword in call.keywords]:
            yield _given(f"{name}({key})", value, constants, f"SM_VLLM_{key.upper()}")
    for statement in [] if calls else tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_known(name):
                yield _given(name, value, constants, f"SM_VLLM_{name.upper()}")


def _environment(node: ast.AST, constants: dict[str, ast.expr]) -> Iterator[Read]:
    """The variables that a statement or a call sets."""
    unread = ""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                match target:
                    case ast.Subscript(owner, ast.Constant(value=str(name))) if _is_environ(owner):
                        yield _given(name, value, constants, name)
                    case ast.Subscript(owner) if _is_environ(owner):
                        unread = "os.environ[...]"
        case ast.Call(ast.Attribute(owner, "setdefault"), [ast.Constant(str(name)), value]) if _is_environ(owner):
            yield _given(name, value, constants, name)
        case ast.Call(ast.Attribute(owner, "update" | "setdefault" as method)) if _is_environ(owner):
            unread = f"os.environ.{method}"
        case ast.Call(ast.Attribute(attr="putenv") | ast.Name(id="putenv")):
            unread = "os.putenv"
        case ast.AugAssign(ast.Subscript(owner) | owner) if _is_environ(owner):
            unread = "os.environ"
        case ast.Call(ast.Attribute(attr="load_dotenv") | ast.Name(id="load_dotenv")):
            yield note(Severity.ERROR, "load_dotenv", *FILE)
    if unread:
        why = "of the variables only os.environ['NAME'] = ... and os.environ.setdefault('NAME', ...) are read"
        yield note(Severity.ERROR, unread, why, "Write it as one of them.")


def _is_environ(node: ast.expr) -> bool:
    """`os.environ`, or what `from os import environ` imports."""
    match node:
        case ast.Attribute(attr="environ") | ast.Name(id="environ"):
            return True
    return False


def _literal(node: ast.expr, constants: dict[str, ast.expr]) -> Json:
    """The value of a literal, `dict(...)` or `torch.<type>`. Anything else is a BadValue: nothing is computed."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return plain(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return plain(-value)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item, constants) for item in items]
        case ast.Dict(keys=keys) if all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in keys):
            pairs = zip(keys, node.values, strict=True)
            return {str(_literal(key, {})): _literal(item, constants) for key, item in pairs if key is not None}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return {keyword.arg or "": _literal(keyword.value, constants) for keyword in keywords}
        case ast.Attribute(value=ast.Name(id="torch"), attr=attribute):
            return f"torch.{attribute}"
        case ast.Name(id=name) if name in constants:
            return _literal(constants[name], {})
    raise BadValue(f"it is computed in line {node.lineno}, and scripts are not run", "Write its value out")


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What a name stands for that the script sets once, to a text, a number or a flag."""
    nodes = [*ast.walk(tree)]
    stores = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stores.update(node.arg for node in nodes if isinstance(node, ast.arg))
    assigned = (node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
    names = [(target.id, node.value) for node in assigned for target in node.targets if isinstance(target, ast.Name)]
    return {name: value for name, value in names if stores[name] == 1}


def _given(source: str, node: ast.expr, constants: dict[str, ast.expr], variable: str) -> Read:
    try:
        return Given(source, variable, _literal(node, constants))
    except BadValue as bad:
        return note(Severity.ERROR, source, bad.problem, f"{bad.fix}.")
