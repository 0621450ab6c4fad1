"""Examines the files that an endpoint is served with: the model's, a draft's and the adapters'.

`check`, `pack`, `push`, `deploy`, the start and `POST /models` look here. What cannot be looked at is a finding too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.config.problems import SettingErrors
from handler.errors import EndpointError, SettingError
from handler.neuron.checkpoint.adapter_files import AdapterProblem, check_adapter, model_modules
from handler.neuron.checkpoint.chat_template import configured_template
from handler.neuron.checkpoint.checkpoint_files import LocalFiles, read_json
from handler.neuron.checkpoint.checkpoint_reader import open_checkpoint
from handler.neuron.checkpoint.file_findings import FileFindings, not_checked
from handler.neuron.checkpoint.remote_code import check_remote_code
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.lines.line_registry import installed_line
from handler.neuron.planning.vllm_versions import version_of

# Lines whose requirements hold transformers 5 (requirements/lock-*.txt).
TRANSFORMERS_5 = ("native-0.24", "native-0.29")


def file_findings(config: EndpointConfig, line: str | None = None) -> tuple[Finding, ...]:
    """What the files would fail of, and what could not be looked at.

    :param line: of the plan; None: the configured or the installed one.
    """
    installed = installed_versions()
    line = line or config.line or installed_line(installed) or "cpu"
    vllm = version_of(line, installed) or ""
    found = list(_of_model(config.model, "model", line, vllm, config))
    if config.speculative_model:
        found += _of_model(config.speculative_model, "speculative_model", line, vllm, config)
    if config.lora_modules and not any(finding.severity is Severity.ERROR for finding in found):
        found += _of_adapters(config)
    return tuple(found)


def require_sound_files(config: EndpointConfig, setting: str) -> None:
    """Checks the files of a model that is on this machine.

    :raises SettingErrors: an engine would not start with them, or would answer wrongly.
    """
    found = file_findings(replace(config, speculative_model=None, lora_modules={}))
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    if errors:
        raise SettingErrors([SettingError(setting, f"{error.setting}: {error.why}", error.fix) for error in errors])


def _of_model(where: str, field: str, line: str, vllm: str, config: EndpointConfig) -> Iterator[Finding]:
    setting, target = config.source(field).name or field, field == "model"
    try:
        files = open_checkpoint(where)
        if files is None:
            yield _hub(where, setting, config)
            return
        if isinstance(files, LocalFiles) and not config.trust_remote_code:
            check_remote_code(files.directory, setting)
        document = read_json(files, "config.json")
        if document is None:
            yield not_checked(setting, f"{where[:200]}, which is in Mistral's own format")
            return
    except SettingError as error:
        yield Finding("model-files", Severity.ERROR, error.setting, error.problem, error.fix)
        return
    except EndpointError as error:
        yield Finding("model-unreadable", Severity.ERROR, setting, error.message, "Check the network and the region.")
        return
    findings = FileFindings(
        files,
        document,
        complete=not (isinstance(files, LocalFiles) and files.hub),
        every_loader=line.startswith("nxdi"),
        transformers=5 if line in TRANSFORMERS_5 else 4,
        trust=config.trust_remote_code,
        vllm=vllm,
    )
    template = None
    try:
        template = configured_template(config, files) if target else None
    except SettingError as error:
        elsewhere = config.instance is not None and (config.chat_template or "").startswith("/")
        invalid = Finding("model-files", Severity.ERROR, error.setting, error.problem, error.fix)
        yield not_checked(error.setting, error.problem) if elsewhere else invalid
    parser = None if config.tool_parser_plugin else config.tool_call_parser
    weights = config.engine_args.get("load_format") in (None, "auto", "safetensors")
    findings.examine(template, parser, weights=weights, generates=target)
    yield from findings.found


def _of_adapters(config: EndpointConfig) -> Iterator[Finding]:
    """The adapters that can be reached. One that is not on this machine is an error only in a plan for it."""
    setting, modules = config.source("lora_modules").name or "lora_modules", model_modules(config.model)
    for name, where in config.lora_modules.items():
        try:
            files = open_checkpoint(where)
            if files is None:
                yield not_checked(setting, f"the adapter '{name[:60]}', which is not on this machine")
                continue
            check_adapter(files, config.max_lora_rank, modules, config.lora_target_modules)
        except (AdapterProblem, EndpointError) as error:
            missing = where.startswith(("/", "./", "../")) and not Path(where).exists()
            why = f"the adapter '{name[:60]}' cannot be loaded: {error}"
            gone = missing and config.instance is not None
            fix = "Correct the adapter, or remove it."
            yield not_checked(setting, why) if gone else Finding("lora-file", Severity.ERROR, setting, why, fix)


def _hub(name: str, setting: str, config: EndpointConfig) -> Finding:
    """A model that is on the hub, or nowhere. Only the hub is asked whether it is there; nothing is downloaded."""
    problem = "the hub's client is not installed here"
    try:
        from huggingface_hub import HfApi

        if HfApi(token=config.hf_token).file_exists(name, "config.json"):
            return not_checked(setting, f"the files of {name}, which are on the hub")
        problem = "it has no config.json there"
    except ImportError:
        pass
    except Exception as error:  # the client raises its own errors, those of its HTTP library, and OSError
        problem = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}"
    if config.instance is None:
        why = f"{name[:100]} is not on this machine, and cannot be reached on the hub ({problem})"
        return Finding("model-unreachable", Severity.ERROR, setting, why, "Check the id, HF_TOKEN and the network.")
    return not_checked(setting, f"{name[:100]}, which is not on this machine ({problem})")
