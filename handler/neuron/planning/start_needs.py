"""Findings about what only a start uses: settings that no plan holds, packages, and files of the load format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from handler.config import vllm_variables
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.config.start_rules import refused
from handler.config.values import shown
from handler.errors import SettingError
from handler.json_value import mapping
from handler.neuron.checkpoint.model_facts import ModelFacts, stored_quantization
from handler.neuron.checks.start_values import NUMERIC
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.fork import SUFFIX
from handler.neuron.lines.line_registry import installed_line
from handler.neuron.lines.optimum_neuron import NAME as OPTIMUM
from handler.neuron.planning.vllm_versions import version_of

# Setting -> value -> the module that vLLM imports for it. Sources: vLLM 0.16 to 0.32, model_executor/model_loader,
# v1/executor/ray_utils.py and distributed/kv_transfer/kv_connector/v1.
MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "load_format": {
        "bitsandbytes": "bitsandbytes",
        "fastsafetensors": "fastsafetensors",
        "instanttensor": "instanttensor",
        "modelexpress": "modelexpress",
        "runai_streamer": "runai_model_streamer",
        "runai_streamer_sharded": "runai_model_streamer",
        "tensorizer": "tensorizer",
    },
    "speculative_config.method": {"suffix": "arctic_inference"},
    "quantization": {"bitsandbytes": "bitsandbytes"},
    "distributed_executor_backend": {"ray": "ray"},
    "data_parallel_backend": {"ray": "ray"},
    "prefix_caching_hash_algo": {"xxhash": "xxhash", "xxhash_cbor": "xxhash"},
    "kv_transfer_config.kv_connector": {
        "LMCacheConnectorV1": "lmcache",
        "LMCacheMPConnector": "lmcache",
        "MoRIIOConnector": "msgpack",
        "MooncakeConnector": "mooncake",
        "NixlConnector": "nixl",
        "NixlPullConnector": "nixl",
        "NixlPushConnector": "nixl",
        "P2pNcclConnector": "msgpack",
    },
}

# Arguments with classes that vLLM imports -> what stands before the class (vLLM 0.11 to 0.32,
# v1/sample/logits_processor and resolve_obj_by_qualname), and its word for its own.
CLASSES: Final[Mapping[str, str]] = {
    "logits_processors": ":",
    **dict.fromkeys(("scheduler_cls", "worker_cls", "worker_extension_cls"), "."),
}
OWN_CLASS: Final = "auto"
# The entry points of packages that bring an IO processor (vLLM 0.16 to 0.32, plugins/io_processors).
IO_PROCESSORS: Final = "vllm.io_processor_plugins"

# Load format -> the files that it reads, `*.pt` beside each (vLLM 0.16 to 0.32, model_loader/default_loader.py).
FILES: Final[Mapping[str, str]] = {
    "fastsafetensors": "*.safetensors",
    "instanttensor": "*.safetensors",
    "mistral": "consolidated*.safetensors",
    "npcache": "*.bin",
    "pt": "*.pt",
    "safetensors": "*.safetensors",
}
# What the loader of these formats takes (the last since 0.24).
LOADER_KEYS: Final = ("enable_multithread_load", "num_threads", "enable_weights_track")


def start_needs(
    config: EndpointConfig, plan: EnginePlan | None, facts: ModelFacts | None, installed: Mapping[str, str]
) -> Iterator[Finding]:
    """What is missing. For another machine, or where vLLM is not installed, only the form of names is checked."""
    if plan is None:
        return
    here = config.instance is None and {plan.line, installed_line(installed)} == {CPU.name}
    yield from _classes(config, plan, here)
    if not here:
        return
    for name, modules in MODULES.items():
        outer, dot, key = name.partition(".")
        value = plan.engine_args.get(outer)
        setting = f"{config.setting(outer)}{dot}{key}"
        if name == "quantization" and value is None and facts is not None:
            stored = stored_quantization(facts.config) or {}
            value, setting = stored.get("quant_method"), config.setting("model")
        text = str(value.get(key) if isinstance(value, dict) else value)
        module = modules.get(text, modules.get(text.lower()))
        if module is not None and find_spec(module) is None:
            why = f"{text} needs the package {module}, which is not installed here"
            yield Finding("package-missing", Severity.ERROR, setting, why, "Install it, or remove this.")
    plugin = plan.engine_args.get("io_processor_plugin")
    if plugin and plugin not in {each.name for each in entry_points(group=IO_PROCESSORS)}:
        why = f"no package is installed that brings the IO processor {str(plugin)[:60]}"
        fix = "Install it, or remove this."
        yield Finding("package-missing", Severity.ERROR, config.setting("io_processor_plugin"), why, fix)
    loader, extra = str(plan.engine_args.get("load_format") or "auto").lower(), "model_loader_extra_config"
    keys = mapping(plan.engine_args.get(extra)).keys() - LOADER_KEYS if loader in {"auto", "hf", *FILES} else ()
    if keys:
        why = f"the loader of load_format {loader} has no {', '.join(sorted(keys))[:80]}, and ends"
        fix = f"Give {', '.join(LOADER_KEYS)}, or set the load_format that reads it."
        yield Finding("loader-key", Severity.ERROR, config.setting(extra), why, fix)
    pattern = FILES.get(str(plan.engine_args.get("load_format")).lower())
    if pattern is None or facts is None or not facts.local or next(_matches(facts.where, pattern, "*.pt"), None):
        return
    why = f"the model has no file {pattern}, which this format reads"
    yield Finding("weights-missing", Severity.ERROR, config.setting("load_format"), why, "Remove it.")


def _classes(config: EndpointConfig, plan: EnginePlan, here: bool) -> Iterator[Finding]:
    """Classes that vLLM cannot import, by the form of their names or, on this machine, for want of the module."""
    for name, separator in CLASSES.items():
        value = plan.engine_args.get(name)
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, str) or each in ("", OWN_CLASS) or set(each) & {",", " "}:
                continue  # of a list that is one item, there is another finding
            module, _, last = each.rpartition(separator)
            if not module or not last or each.count(":") != separator.count(":"):
                why = f"vLLM reads package.module{separator}Class here, not {shown(each)}"
                yield Finding("class-form", Severity.ERROR, config.setting(name), why, "Write it so, or remove this.")
            elif here and not _is_module(module):
                why = f"there is no module {module[:60]} with the class {each[:100]}"
                fix = "Install it, or remove this."
                yield Finding("package-missing", Severity.ERROR, config.setting(name), why, fix)


def _is_module(name: str) -> bool:
    """Whether a module is installed. Its packages are not imported, which would run their code."""
    package, *inner = name.split(".")
    try:
        spec = find_spec(package) if package else None
    except ValueError:  # it is imported and has no spec, as __main__
        return False
    for part in inner:  # by the last name: by the whole one, a namespace package asks for an imported parent
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations or ())) if spec else None
    return spec is not None


def refused_settings(
    config: EndpointConfig, plan: EnginePlan | None, environ: Mapping[str, str]
) -> Iterator[SettingError]:
    """What the start refuses of the settings that no plan holds, and of the variables that vLLM reads.

    :param plan: None if there is no engine, or if nothing was planned. Then it is not known what a line uses.
    """
    installed = installed_versions()
    version = version_of(plan.line, installed) if plan else None
    if plan and version:
        checked = {**environ, **{name: value for name, value in plan.env.items() if name not in NUMERIC}}
        yield from vllm_variables.problems(checked, version)
        problem = vllm_variables.logging_problem(checked, here=plan.line == installed_line(installed))
        if problem:
            yield problem
    line = plan.line if plan else OPTIMUM
    loads = line not in (CPU.name, OPTIMUM) and not line.endswith(SUFFIX)
    yield from refused(config, engine=config.engine != "none", artifacts=loads, store=line != OPTIMUM)


def _matches(directory: str, *patterns: str) -> Iterator[Path]:
    return (path for pattern in patterns for path in Path(directory).glob(pattern))
