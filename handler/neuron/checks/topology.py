"""Checks cores: too many, an LNC that the platform does not have, unsuitable degrees; and rejects several nodes.

Neuron notices none of these before the compile, and some not even then. No line has several nodes or engines for one
model (docs/scale.md): vllm-project/vllm-neuron, vllm_neuron/platform.py (the executor becomes `uni`) and
worker/neuron_worker.py (a world of one process); vLLM 0.16, vllm/v1/executor/multiproc_executor.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Final

from handler.config.finding import Finding
from handler.errors import SettingError
from handler.json_value import Json, whole_number
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.hardware import instance_catalogue as catalogue
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.plan_draft import engines_here
from handler.neuron.neuron_config.config_values import ConfigValues

VARIABLE: Final = "NEURON_LOGICAL_NC_CONFIG"
OLDER_LNC: Final = "NEURON_RT_VIRTUAL_CORE_SIZE"
VISIBLE: Final = "NEURON_RT_VISIBLE_CORES"
# How many cores the runtime gives to a process; 0 for all (AWS Neuron documentation, "Neuron Runtime configuration").
COUNT: Final = "NEURON_RT_NUM_CORES"
# The native plugin starts a process for each rank, and divides these among them.
DEVICES: Final = "NEURON_VISIBLE_DEVICES"


def platform(context: CheckContext) -> Iterator[Finding]:
    """The line must run on the instance."""
    instance, line = context.instance, context.line
    if instance is None or not line.platforms or instance.platform in line.platforms:
        return
    why = f"{line.name} runs on {', '.join(line.platforms)}, not on {instance.name}"
    fix = f"Use an instance of {' or '.join(line.platforms)}, or another line (ENDPOINT_LINE)."
    yield error("line-platform", "line" if context.config.line else "instance", why, fix)


def _lnc(context: CheckContext) -> int | None:
    """The LNC that would be used: the variable, then NeuronConfig's key; None for the platform's default."""
    text = context.draft.env.get(VARIABLE, "").strip()
    if text.isascii() and text.isdigit() and len(text) < 4:
        return int(text)
    keys = context.values.given
    return whole_number(keys.get("logical_nc_config", keys.get("logical_neuron_cores")))


def lnc(context: CheckContext) -> Iterator[Finding]:
    """The variable beats the key, the key beats the platform's default. A platform allows one or two values."""
    variable, key = context.draft.env.get(VARIABLE), context.values.given.get("logical_nc_config")
    setting = "logical_nc_config" if context.config.logical_nc_config is not None else VARIABLE
    if variable is not None and context.config.logical_nc_config is None:
        setting = VARIABLE
    given = context.config.neuron_env.get(VARIABLE)
    if given is not None and context.config.logical_nc_config is not None and given != variable:
        why = f"{VARIABLE} is {given[:20]}, but logical_nc_config is {variable}"
        yield error("conflicting-settings", VARIABLE, why, "Keep one of the two.")
    if variable is not None and variable.strip() not in ("1", "2"):
        yield error("lnc", setting, f"'{variable[:20]}' is not a valid LNC", "Use 1 or 2, or remove it.")
        return
    if variable is not None and key is not None and str(key) != variable.strip():
        why = f"{VARIABLE}={variable.strip()} overrides logical_nc_config {str(key)[:20]} in NeuronConfig"
        yield error("conflicting-settings", context.config.raw_key("logical_nc_config"), why, "Keep one of the two.")
        return
    configured = _lnc(context)
    if configured == 1 and context.nxd and context.instance is not None and 2 in context.instance.lnc:
        why = "NxD Inference is optimized for LNC 2 on this instance"
        where = setting if variable is not None else context.config.raw_key("logical_nc_config")
        yield info("lnc-one", where, why, "Remove it, unless you measured that 1 is faster.")
    if configured is None or context.instance is None or configured in context.instance.lnc:
        return
    allowed = " or ".join(str(one) for one in context.instance.lnc)
    where = setting if variable is not None else context.config.raw_key("logical_nc_config")
    why = f"{context.instance.name} does not support LNC {configured}; Neuron notices it only when the model runs"
    yield error("lnc", where, why, f"Use {allowed}, or remove it.")


def older_lnc(context: CheckContext) -> Iterator[Finding]:
    """The LNC's older name, which the runtime reads and NxD Inference's language models do not."""
    older, used = context.draft.env.get(OLDER_LNC, "").strip(), _lnc(context)
    if used is None and context.instance is not None:
        used = catalogue.default_lnc(context.instance)
    if not context.line.platforms or not older or used is None or older == str(used):
        return
    why = f"it is an older name of the LNC, and the graphs are compiled for LNC {used}, not for {older[:20]}"
    yield warning("older-lnc", OLDER_LNC, why, "Remove it. To choose the LNC, set logical_nc_config.")


def _cores(instance: InstanceType, lnc: int | None) -> int | None:
    try:
        return catalogue.logical_cores(instance, lnc)
    except SettingError:
        return None


def cores(context: CheckContext) -> Iterator[Finding]:
    """The degree must not exceed the cores. Unusual degrees are reported."""
    degree = context.draft.number("tensor_parallel_size")
    if degree is None or degree < 1 or not context.line.platforms:
        return
    setting = "tensor_parallel_size"
    if context.instance is not None:
        lnc = _lnc(context)
        count = _cores(context.instance, lnc)
        nodes = context.draft.number("nnodes") or context.config.nodes or 1
        if count is not None and context.nxd and degree <= count * nodes:
            yield from _world(context.values, count * nodes, context.key)
            if context.vision is not None:
                vision = context.setting("vision_neuron_config")
                yield from _world(context.vision, count * nodes, lambda key: f"{vision}.{key}")
        engines, all_cores = engines_here(context.draft.args), (count or 0) * nodes
        if degree <= all_cores < degree * engines:
            where = f"{nodes} nodes of {context.instance.name}" if nodes > 1 else context.instance.name
            local = "data_parallel_size_local" in context.draft.args and nodes == 1
            why = f"{engines} engines of {degree} cores need more than the {all_cores} of {where}"
            setting_of_engines = "data_parallel_size_local" if local else "data_parallel_size"
            yield error("too-many-cores", setting_of_engines, why, "Lower one of the two.")
        if count is not None and degree > count * nodes:
            why = f"{context.instance.name} has {count} logical cores, not {degree}, so the compile would fail"
            yield error("too-many-cores", setting, why, f"Lower it to {count} or less, or use a larger instance.")
        elif count is not None and catalogue.unusual_degree(context.instance, degree, lnc):
            usual = ", ".join(str(one) for one in catalogue.degrees(context.instance, lnc))
            why = f"tensor parallel degree {degree} is not among those listed for {context.instance.platform}"
            yield warning("unusual-degree", setting, why, f"Use one of {usual}.")
    yield from _visible(context, degree)
    yield from _chosen(context, degree)
    yield from _counted(context, degree)


def divided_heads(context: CheckContext) -> Iterator[Finding]:
    """A degree that does not divide the heads. vLLM itself rejects it (vllm/config/model.py), Neuron's plugins pad."""
    degree, heads = context.draft.number("tensor_parallel_size"), context.facts.heads if context.facts else 0
    if degree is None or degree < 1 or not heads % degree:
        return
    setting = "tensor_parallel_size"
    if context.line.keys is ConfigKeys.NATIVE or context.line.name == CPU.name:
        why = f"{degree} does not divide the model's {heads} attention heads, and vLLM does not start"
        yield error("indivisible-heads", setting, why, f"Use a degree that divides {heads}.")
        return
    why = f"{degree} does not divide the model's {heads} attention heads, so that they are padded or replicated"
    yield info("padded-heads", setting, why, f"Use a degree that divides {heads}: it needs less memory and time.")


def _world(values: ConfigValues, count: int, named: Callable[[str], str]) -> Iterator[Finding]:
    """All ranks together (NxDI 0.10, models/config.py:381).

    :param named: the name by which the user set a key.
    """
    degrees = ("tp_degree", "pp_degree", "ep_degree")
    world = values.number("world_size") or prod(values.degree(key) for key in degrees)
    if world > count:
        key = next((key for key in ("world_size", "pp_degree", "ep_degree") if values.number(key) > 1), "tp_degree")
        why = f"all ranks together are {world}, and there are {count} logical cores"
        yield error("too-many-cores", named(key), why, "Lower it, or use a larger instance.")


def _visible(context: CheckContext, degree: int) -> Iterator[Finding]:
    native = context.line.keys is ConfigKeys.NATIVE
    name = DEVICES if native else VISIBLE
    if native and VISIBLE in context.draft.env:
        why = "the native plugin's processes do not start with it"
        yield error("visible-cores", VISIBLE, why, f"Use {DEVICES}={context.draft.env[VISIBLE][:40]} instead.")
    text = context.draft.env.get(name)
    if text is None:
        return
    count, (ranks, named) = 0, _ranks(context, degree) if native else (degree, "tensor_parallel_size")
    # Of several engines, the native plugin reads one range or a list, and no list of ranges (vllm_neuron/vllm/
    # platform.py, device_id_to_physical_device_id).
    whole = native and "-" in text and context.number("data_parallel_size") > 1
    for part in [text] if whole else text.split(","):
        first, _, last = part.strip().partition("-")
        last = last or first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit() and len(first + last) < 12):
            why = f"'{text[:40]}' is not a list of cores{' that several engines can be given' * whole}"
            yield error("visible-cores", name, why, "Write a range (0-15) or a list (0,1,2,3).")
            return
        count += int(last) - int(first) + 1
    if native and count > ranks:
        why = f"it names {count} cores, and the plugin wants one for each of {ranks} ranks ({named})"
        yield error("visible-cores", name, why, f"Name {ranks} cores.")
    if count < ranks:
        why = f"{count} cores are visible, and there are {ranks} ranks ({named})"
        yield error("visible-cores", name, why, f"Make {ranks} visible, or lower tensor_parallel_size.")


def _ranks(context: CheckContext, degree: int) -> tuple[int, str]:
    """The native plugin's processes here: vLLM gives each engine its part of the cores (0.24, v1/engine/utils.py).

    :return: their number, and how a finding names it.
    """
    engines, nodes, named = engines_here(context.draft.args), max(1, context.number("nnodes")), "tensor_parallel_size"
    named += f" x {engines} engines" * (engines > 1) + f" / {nodes} nodes" * (nodes > 1)
    return max(1, degree * engines // nodes), named


def _chosen(context: CheckContext, degree: int) -> Iterator[Finding]:
    """vLLM's argument for the same. A number too many is left over if vLLM divides them among several engines.

    Source: vLLM 0.24 and 0.29, v1/engine/utils.py, get_physical_gpu_ids_for_local_dp_rank; vllm-neuron 0.24.0.1.1.0,
    vllm/worker/neuron_worker.py, _get_visible_devices.
    """
    device_ids: Json = context.draft.args.get("device_ids")
    if context.line.keys is not ConfigKeys.NATIVE or not device_ids:
        return
    count = len(device_ids if isinstance(device_ids, list) else str(device_ids).split(","))
    ranks, named = _ranks(context, degree)
    if count < ranks or (count > ranks and context.number("data_parallel_size") <= 1):
        why = f"it names {count} cores, and the plugin wants one for each of {ranks} ranks ({named})"
        yield error("visible-cores", "device_ids", why, f"Name {ranks} cores, or remove it.")


def _counted(context: CheckContext, degree: int) -> Iterator[Finding]:
    """One process runs all ranks of NxD Inference, and each of the native plugin's has a process of its own."""
    text = context.draft.env.get(COUNT, "0").strip()
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if count == 0 or VISIBLE in context.draft.env:
        return
    if context.line.keys is ConfigKeys.NATIVE:
        why = (
            "the native plugin chooses the core of each of its processes; what it does beside this variable is unknown"
        )
        yield warning("visible-cores", COUNT, why, f"Remove it, or use {DEVICES}.")
    elif count < degree:
        why = f"the runtime gives the process {count} cores, and the tensor parallel degree is {degree}"
        yield error("visible-cores", COUNT, why, f"Remove it, or set it to {degree}, or lower tensor_parallel_size.")


TOPOLOGY: Final = (platform, lnc, older_lnc, cores, divided_heads)
