"""Imports vLLM as a start does, in a process that forks the next serving process."""

from __future__ import annotations

from handler.config.endpoint_config import EndpointConfig
from handler.engine.launch import import_vllm
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.planning.examination import examine_config
from handler.startup.checked_plan import use_environment
from handler.startup.custom_code_loading import names_requirements
from handler.startup.start import starts_without_model


def preloads(config: EndpointConfig) -> bool:
    """Whether the next serving process can take over an import: its engine is its own."""
    return config.preload_after > 0 and config.engine != "none" and config.front_ends == 1


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
