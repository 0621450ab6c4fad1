"""Examines the files that an endpoint is served with: the model's, a draft's and the adapters'.

`check`, `pack`, `push`, `deploy`, the start and `POST /models` look here. What cannot be looked at is a finding too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from handler.config.config_rows import secrets
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.config.loading.model_file_rules import MOUNT
from handler.config.loading.network_isolation import ARGUMENTS, OWN_WORDS
from handler.config.problems import SettingErrors
from handler.config.start_rules import PLUGINS
from handler.errors import EndpointError, NoDirectory, SettingError
from handler.json_value import Json, mapping
from handler.neuron.checkpoint import file_findings as rules
from handler.neuron.checkpoint.adapter_files import DEFAULT_RANK, AdapterProblem, check_adapter, model_modules
from handler.neuron.checkpoint.chat_template import configured_template
from handler.neuron.checkpoint.checkpoint_files import SETTING, CheckpointFiles, LocalFiles, read_json
from handler.neuron.checkpoint.checkpoint_reader import EXPORT, open_checkpoint
from handler.neuron.checkpoint.export_files import export_findings
from handler.neuron.checkpoint.generation_defaults import FILE, OVERRIDE, OWN_FILE, wrong_defaults
from handler.neuron.checkpoint.model_facts import number, overridden
from handler.neuron.checkpoint.remote_code import check_remote_code
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.lines.fork import FORK_091
from handler.neuron.lines.line_registry import find_line, installed_line, reads_overrides
from handler.neuron.lines.optimum_neuron import NAME as OPTIMUM
from handler.neuron.planning.examination import Examination, by_severity, masked
from handler.neuron.planning.vllm_versions import version_of
from handler.regular_files import exists

# The first vLLM whose requirements hold transformers 5 (requirements/lock-0.24.0.txt).
TRANSFORMERS_5 = (0, 24)
HUB_SECONDS = 5
LOGGING_FILE: Final = "pylogging_config_file"
MISTRAL = "params.json"
# Files of a tokenizer in Mistral's own format (mistral-common 1.13, tokens/tokenizers/utils.py).
MISTRAL_TOKENS: Final = re.compile(r"tekken\.json|[^.]+\.model(\.v\d+(m\d+)?)?")

# Keys of config.json that are read before `hf_overrides` are applied, or whose other values vLLM reads too.
READ: Final = ("model_type", "dtype", "torch_dtype", "auto_map", "quantization_config")


def file_findings(config: EndpointConfig, line: str | None = None, length: Json = None) -> tuple[Finding, ...]:
    """What the files would fail of on a line (None: the configured or installed one), and what was not looked at.

    :param length: the plan's max_model_len, if there is a plan.
    """
    installed = installed_versions()
    line = line or config.line or installed_line(installed) or "cpu"
    vllm = version_of(line, installed) or ""
    transformers = 5 if vllm and tuple(map(int, vllm.split(".")[:2])) >= TRANSFORMERS_5 else 4
    plain = not {"runner", "convert", "task"} & config.engine_args.keys()
    loader = rules.Loader(
        vllm,
        transformers,
        line.startswith("nxdi") or line == OPTIMUM,
        config.trust_remote_code,
        plain,
        line == OPTIMUM,
        line == "cpu",
        reads_overrides(find_line(line)),
        line.startswith("native"),
    )
    draft = replace(loader, trust=True, plain=plain and config.speculation in (None, "draft_model"))
    findings = [*rules.collected(_of_model(config, "model", loader)), *_of_draft(config, draft)]
    if line.startswith(FORK_091.name) and isinstance(length, int):
        findings += rules.collected(_of_length(config, length))
    if not any(finding.severity is Severity.ERROR for finding in findings):
        findings += rules.collected(_of_adapters(config))
    return tuple(findings)


def with_files(examination: Examination) -> Examination:
    """An examination with what the files would fail of. One whose settings or model cannot be read is complete."""
    if examination.config is None or (examination.facts is None and examination.failed):
        return examination
    known = secrets(examination.config)
    seen = (finding for finding in examination.findings if finding.code != "model-not-read")
    plan = examination.plan
    files = file_findings(examination.config, examination.line, plan.engine_args.get("max_model_len") if plan else None)
    findings = by_severity((*(masked(finding, known) for finding in files), *seen))
    return replace(examination, findings=tuple(findings))


def require_sound_files(config: EndpointConfig, setting: str) -> None:
    """:raises SettingErrors: an engine would not start with the model's files, or would answer wrongly."""
    findings = file_findings(replace(config, speculative_model=None, lora_modules={}))
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise SettingErrors([SettingError(setting, f"{error.setting}: {error.why}", error.fix) for error in errors])


def _of_model(config: EndpointConfig, field: str, loader: rules.Loader) -> Iterator[Finding]:
    """:raises SettingError: there is no such model, or it has remote code or a template that cannot be read."""
    where, setting = getattr(config, field), config.source(field).name or field
    files = open_checkpoint(where) if where else None
    if files is None:
        yield from [_hub(where, setting, config)] if where else ()
        return
    if isinstance(files, LocalFiles) and not config.trust_remote_code:
        check_remote_code(files.directory, setting)
    document, complete = read_json(files, "config.json"), not (isinstance(files, LocalFiles) and files.hub)
    named = complete and field == "model" and "hf_config_path" not in config.engine_args
    if named and config.engine_args.get("config_format") == "mistral" and MISTRAL not in files.listing():
        why = f"the model has no {MISTRAL}, which this format reads"
        yield rules.error(config.setting("config_format"), why, "Remove it.")
    if document is None:
        yield rules.not_checked(setting, f"{where[:200]}, which is in Mistral's own format")
        return
    of_file = [*rules.config_findings(document, loader)]
    document = overridden(document, _overrides(config, loader)) if field == "model" else document
    for finding in rules.config_findings(document, loader):
        asked = replace(finding, setting=config.setting("hf_overrides"), fix="Correct it, or remove it.")
        yield finding if finding in of_file else asked
    if loader.exports and EXPORT in files.listing():
        offline = config.network_isolation
        yield from rules.collected(export_findings(files, document, loader, complete=complete, offline=offline))
    elif loader.native or loader.indexed or config.engine_args.get("load_format") in (None, "auto", "safetensors"):
        here = complete and not config.compiled_artifacts
        yield from rules.collected(rules.weight_findings(files, document, loader, complete=here))
    if field == "model":
        yield from _of_parts(config, loader)
        yield from _of_paths(config, files)
        yield from _of_plugins(config, files)
        yield from _of_defaults(config, files)
    if field == "model" and loader.cpu and config.quantization and "hf_overrides" not in config.engine_args:
        setting = config.setting("quantization")
        yield from rules.quantization_findings(document, files.listing(), config.quantization, setting, loader.vllm)
    if field == "model":
        yield from _of_text(config, files, document, loader, complete=complete)


def _overrides(config: EndpointConfig, loader: rules.Loader) -> dict[str, Json]:
    """What of `hf_overrides` decides how vLLM reads the files. It finds the classes of a line that reads its own."""
    asked = mapping(config.engine_args.get("hf_overrides"))
    return {key: value for key, value in asked.items() if key == "architectures" or (loader.built and key not in READ)}


def _of_draft(config: EndpointConfig, loader: rules.Loader) -> Iterator[Finding]:
    """The draft's files, by the setting of the draft. For another machine, `examine` warns of a missing directory."""
    setting = config.source("speculative_model").name or "speculative_model"
    where = config.speculative_model or ""
    if config.instance is not None and where.startswith("/") and not (exists(Path(where)) and Path(where).is_dir()):
        yield rules.not_checked(setting, "the draft's files, which are not on this machine")
        return
    for finding in rules.collected(_of_model(config, "speculative_model", loader)):
        named = "" if finding.setting in (setting, SETTING) else f"{finding.setting}: "
        yield replace(finding, setting=setting, why=f"{named}{finding.why}")


def _of_parts(config: EndpointConfig, loader: rules.Loader) -> Iterator[Finding]:
    holders = {"kv_connector": "kv_transfer_config", "ec_connector": "ec_transfer_config"}
    holders["reasoning_parser"] = "structured_outputs_config"
    named: dict[str, Json] = {}
    for holder in holders.values():
        nested = config.engine_args.get(holder)
        named |= nested if isinstance(nested, dict) else {}
    holders = {name: holder for name, holder in holders.items() if named.get(name)}
    named |= config.engine_args
    named |= {name: getattr(config, name) for name in ("tool_call_parser", "tool_parser_plugin", "quantization")}
    yield from rules.part_findings(named, loader, lambda name: config.setting(holders.get(name, name)))


def _of_paths(config: EndpointConfig, files: CheckpointFiles) -> Iterator[Finding]:
    """Paths of arguments. One where SageMaker puts the model means one of its files, wherever `check` reads them."""
    for name in ARGUMENTS:
        path = config.engine_args.get(name)
        if not isinstance(path, str) or path in OWN_WORDS or exists(Path(path)):
            continue
        if not path.startswith("/"):
            yield from [_hub(path, config.setting(name), config)] if name != "tokenizer" else ()  # `_of_text` has it
            continue
        why = f"there is nothing at '{path[:200]}'"
        if not path.startswith(f"{MOUNT}/") or not isinstance(files, LocalFiles):
            yield rules.not_checked(config.setting(name), why)
        elif not exists(files.directory / path.removeprefix(f"{MOUNT}/")):
            yield rules.error(config.setting(name), why, "Name what is in the model's directory, or remove it.")


def _of_plugins(config: EndpointConfig, files: CheckpointFiles) -> Iterator[Finding]:
    """Files of parsers, which vLLM passes over if they are not there. It takes another name for an installed module.
    Without that of its logging, vLLM 0.32 does not start."""
    named = {config.setting(name): getattr(config, name, None) or config.engine_args.get(name) for name in PLUGINS}
    paths = {setting: path for setting, path in named.items() if isinstance(path, str) and path.endswith(".py")}
    logging_file = mapping(config.engine_args.get("logging_config")).get(LOGGING_FILE)
    if isinstance(logging_file, str):
        paths[f"{config.setting('logging_config')}.{LOGGING_FILE}"] = logging_file
    for setting, path in paths.items():
        if exists(Path(path)):
            continue
        mounted, absolute = path.startswith(f"{MOUNT}/") and isinstance(files, LocalFiles), path.startswith("/")
        beside = mounted or (setting == config.setting("tool_parser_plugin") and not absolute)
        if not beside or files.read(path.removeprefix(f"{MOUNT}/")) is None:
            why, sure = f"there is no file '{path[:200]}'", mounted or not absolute or config.instance is None
            fix = "Give the path of a file, or remove it."
            yield rules.error(setting, why, fix) if sure else rules.not_checked(setting, why)


def _of_defaults(config: EndpointConfig, files: CheckpointFiles) -> Iterator[Finding]:
    """The defaults for requests. vLLM passes over a file that is no JSON. It does not start with a list in one."""
    named, override = config.engine_args.get("generation_config"), config.engine_args.get(OVERRIDE)
    if named in OWN_FILE and (content := files.read(FILE)) is not None:
        try:
            document: Json = json.loads(content.decode())
        except (ValueError, RecursionError):
            document = {}
        if isinstance(document, dict):
            # A value that the endpoint overrides is not used.
            used = {
                key: value for key, value in document.items() if not isinstance(override, dict) or key not in override
            }
            yield from (rules.error(FILE, why, fix) for why, fix in wrong_defaults(used))
        else:
            yield rules.error(FILE, "it is not a JSON object")
    if isinstance(override, dict):
        for why, fix in wrong_defaults(override):
            yield rules.error(config.setting(OVERRIDE), why, fix)


def _of_text(
    config: EndpointConfig, files: CheckpointFiles, document: dict[str, Json], loader: rules.Loader, *, complete: bool
) -> Iterator[Finding]:
    """The tokenizer and the chat template: the model's, or those of a directory that `tokenizer` names."""
    template, named = configured_template(config, files), config.engine_args.get("tokenizer")
    if config.engine_args.get("skip_tokenizer_init") is True:
        return
    mistral = str(config.engine_args.get("tokenizer_mode")).lower() == "mistral"
    if named is None and mistral:
        yield from _of_mistral(config, files) if complete else ()
        return
    if named is None:
        yield from rules.text_findings(files, document, loader, template, complete=complete)
        return
    setting, directory = config.setting("tokenizer"), Path(str(named))
    if not exists(directory) and isinstance(files, LocalFiles) and str(named).startswith(f"{MOUNT}/"):
        directory = files.directory / str(named).removeprefix(f"{MOUNT}/")
    if directory.is_absolute() and exists(directory) and directory.is_dir():
        there = LocalFiles(directory, str(named))
        if mistral:
            yield from _of_mistral(config, there)
            return
        own = read_json(there, "config.json") or {}
        document = {**document, **{key: own.get(key) for key in ("model_type", "tokenizer_class")}}
        for finding in rules.text_findings(there, document, loader, template, complete=True):
            yield replace(finding, setting=setting, why=f"{finding.setting}: {finding.why}")
    elif not str(named).startswith("/") or exists(directory):  # `_of_paths` has said that nothing is there
        yield rules.not_checked(setting, f"the tokenizer and its chat template, which are in {str(named)[:200]}")


def _of_mistral(config: EndpointConfig, files: CheckpointFiles) -> Iterator[Finding]:
    if not any(MISTRAL_TOKENS.fullmatch(name) for name in files.listing()):
        why = "there is no tekken.json and no tokenizer.model, which mistral reads"
        yield rules.error(config.setting("tokenizer_mode"), why, "Remove it.")


def _of_length(config: EndpointConfig, length: int) -> Iterator[Finding]:
    """vLLM 0.9.1 lowers max_model_len to the tokenizer's length without a word (config.py, get_and_verify_max_len)."""
    files = open_checkpoint(config.model)
    most = number((files and read_json(files, rules.TOKENIZER_CONFIG)) or {}, "model_max_length")
    if 0 < most < length:
        why = f"the tokenizer's model_max_length is {most}, and vLLM 0.9.1 lowers max_model_len ({length}) to it"
        fix = f"Set max_model_len to {most}, or raise model_max_length in {rules.TOKENIZER_CONFIG}."
        yield Finding("tokenizer-length", Severity.WARNING, config.setting("max_model_len"), why, fix)


def _of_adapters(config: EndpointConfig) -> Iterator[Finding]:
    """The adapters that can be reached. One that is not on this machine is an error only in a plan for it."""
    modules = model_modules(config.model) if config.lora_modules else None
    for name, where in config.lora_modules.items():
        setting, problem = config.source("lora_modules").name or "lora_modules", ""
        try:
            files = open_checkpoint(where)
            if files is not None:
                check_adapter(files, config.max_lora_rank or DEFAULT_RANK, modules, config.lora_target_modules)
                continue
        except (AdapterProblem, EndpointError) as error:
            problem = error.problem if isinstance(error, NoDirectory) else str(error)  # it names the model's setting
        why = f"the adapter '{name[:60]}' cannot be loaded: {problem or 'it is not on this machine'}"
        here = problem and (config.instance is None or where.startswith("s3://") or exists(Path(where)))
        fix = "Correct the adapter, or remove it."
        yield Finding("lora-file", Severity.ERROR, setting, why, fix) if here else rules.not_checked(setting, why)


def _hub(name: str, setting: str, config: EndpointConfig) -> Finding:
    """A model that is on the hub, or nowhere. Only the hub is asked whether it is there; nothing is downloaded."""
    try:
        from huggingface_hub import get_session, get_token, hf_hub_url

        # Once: the client's own lookups wait 23 s for a network that is not there (huggingface_hub 0.36.2).
        token = config.hf_token or get_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        get_session().head(hf_hub_url(name, "config.json"), headers=headers, timeout=HUB_SECONDS).raise_for_status()
        return rules.not_checked(setting, f"the files of {name}, which are on the hub")
    except Exception as error:  # the client raises its own errors, those of its HTTP library, ImportError and OSError
        problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}"
    why = f"{name[:100]} is not on this machine, and cannot be reached on the hub ({problem})"
    if config.instance is not None:
        return rules.not_checked(setting, why)
    return Finding("model-unreachable", Severity.ERROR, setting, why, "Check the id, HF_TOKEN and the network.")
