"""Cores: too many, an LNC that the platform does not have, degrees that run badly. None of it is noticed before the
compile, or even after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.errors import SettingError
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.hardware import instance_catalogue as catalogue
from handler.neuron.hardware.instance_type import InstanceType

VARIABLE: Final = "NEURON_LOGICAL_NC_CONFIG"
VISIBLE: Final = "NEURON_RT_VISIBLE_CORES"


def platform(case: CheckContext) -> Iterator[Finding]:
    """A line that does not run on the instance at all."""
    instance, line = case.instance, case.line
    if instance is None or not line.platforms or instance.platform in line.platforms:
        return
    why = f"{line.title} runs on {', '.join(line.platforms)}, not on {instance.name}"
    fix = f"Use an instance of {' or '.join(line.platforms)}, or another line (ENDPOINT_LINE)."
    yield error("line-platform", case.setting("line" if case.config.line else "instance"), why, fix)


def _lnc(case: CheckContext) -> int | None:
    """The LNC in force: the variable, then NeuronConfig's key; None for the platform's own."""
    text = case.draft.env.get(VARIABLE, "").strip()
    if text.isascii() and text.isdigit() and len(text) < 4:
        return int(text)
    value = case.values.given.get("logical_nc_config")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def lnc(case: CheckContext) -> Iterator[Finding]:
    """The variable wins over the key, the key over the platform; the platform has one or two."""
    variable, key = case.draft.env.get(VARIABLE), case.values.given.get("logical_nc_config")
    setting = case.setting("logical_nc_config") if case.config.logical_nc_config is not None else VARIABLE
    if variable is not None and case.config.logical_nc_config is None:
        setting = VARIABLE
    given = case.draft.request.env.get(VARIABLE)
    if given is not None and case.config.logical_nc_config is not None and given != variable:
        why = f"{VARIABLE} says {given[:20]}, but logical_nc_config says {variable}"
        yield error("conflicting-settings", VARIABLE, why, "Keep one of the two.")
    if variable is not None and variable.strip() not in ("1", "2"):
        yield error("lnc", setting, f"'{variable[:20]}' is no LNC", "Use 1 or 2, or leave it out.")
        return
    if variable is not None and key is not None and str(key) != variable.strip():
        why = f"{VARIABLE}={variable.strip()} wins over logical_nc_config {str(key)[:20]} in NeuronConfig"
        yield error("conflicting-settings", case.draft.request.key("logical_nc_config"), why, "Keep one of the two.")
        return
    chosen = _lnc(case)
    if chosen is None or case.instance is None or chosen in case.instance.lnc:
        return
    allowed = " or ".join(str(one) for one in case.instance.lnc)
    where = setting if variable is not None else case.draft.request.key("logical_nc_config")
    why = f"{case.instance.name} has no LNC {chosen}; a wrong one is not noticed before the model runs"
    yield error("lnc", where, why, f"Use {allowed}, or leave it out.")


def _cores(instance: InstanceType, chosen: int | None) -> int | None:
    try:
        return catalogue.logical_cores(instance, chosen)
    except SettingError:
        return None


def cores(case: CheckContext) -> Iterator[Finding]:
    """More cores than there are; unusual degrees; heads that do not divide."""
    degree = case.draft.number("tensor_parallel_size")
    if degree is None or degree < 1 or not case.line.platforms:
        return
    setting = case.setting("tensor_parallel_size")
    if case.instance is not None:
        chosen = _lnc(case)
        count = _cores(case.instance, chosen)
        if count is not None and degree > count:
            why = f"{case.instance.name} has {count} logical cores, not {degree}; nothing notices before the compile"
            yield error("too-many-cores", setting, why, f"Lower it to {count} or less, or use a larger instance.")
        elif count is not None and catalogue.unusual_degree(case.instance, degree, chosen):
            usual = ", ".join(str(one) for one in catalogue.degrees(case.instance, chosen))
            why = f"tensor parallel degree {degree} is not among those listed for {case.instance.platform}"
            yield warning("unusual-degree", setting, why, f"Use one of {usual}.")
    yield from _visible(case, degree)
    heads = case.facts.heads if case.facts else 0
    if heads and heads % degree:
        why = f"{degree} does not divide the model's {heads} attention heads: they are padded or replicated"
        yield info("padded-heads", setting, why, "A degree that divides them costs less memory and time.")


def _visible(case: CheckContext, degree: int) -> Iterator[Finding]:
    text = case.draft.env.get(VISIBLE)
    if text is None:
        return
    count = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        last = last or first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit() and len(first + last) < 12):
            why = f"'{text[:40]}' is no list of cores"
            yield error("visible-cores", VISIBLE, why, "Write it as 0-15 or 0,1,2,3.")
            return
        count += int(last) - int(first) + 1
    if count < degree:
        why = f"{count} cores are visible, and the tensor parallel degree is {degree}"
        yield error("visible-cores", VISIBLE, why, f"Make {degree} visible, or lower tensor_parallel_size.")


TOPOLOGY: Final = (platform, lnc, cores)
