"""Turns variables that mean what other programs are given into a configuration, and findings for the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from handler.config.config_rows import secrets, to_document
from handler.config.dialects.vllm_names import is_empty_flag
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.config.loading.config_loader import load
from handler.config.problems import each
from handler.config.secret_values import MASK, has_secret_name, mask
from handler.errors import SettingError
from handler.json_value import Json

FIX: Final = "Give a command that serves a model, a script with an LLM(...) call, variables, or serving.properties."


class Given(NamedTuple):
    """An option, argument or key: how the input spells it, the variable that means the same here, and its value."""

    source: str
    variable: str
    value: Any

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else "" if self.value is None else json.dumps(self.value)


Read = Given | Finding


class Translation(NamedTuple):
    """The configuration, the variables that it was read from, by their names, and findings for the rest."""

    config: EndpointConfig
    given: Mapping[str, Given]
    findings: tuple[Finding, ...]

    def texts(self) -> dict[str, str]:
        """The values of the variables. Secrets are masked."""
        token, known = self.config.source("hf_token").name, secrets(self.config)
        return {
            name: MASK if name == token or has_secret_name(name) else mask(one.text, known)
            for name, one in self.given.items()
        }

    def document(self) -> dict[str, Json]:
        texts = self.texts().items()
        rows: list[Json] = [{"name": name, "value": text, "source": self.given[name].source} for name, text in texts]
        return {"settings": rows, "findings": [{**one.document()} for one in self.findings]}

    def lines(self, as_yaml: bool) -> Iterator[str]:
        """YAML, or a file for Docker's `--env-file`. Comments have the sources. Secrets are left out."""
        for name, text in self.texts().items():
            yield f"# {name}: from {_printable(self.given[name].source)}"
            if not as_yaml:  # Docker takes the value of a name alone from the environment of its own process.
                line = name if text != self.given[name].text else f"{name}={text}"
                yield line if line.isprintable() else "# It has line breaks: use --yaml"
        if as_yaml:
            yield to_document(self.config).rstrip("\n")


def note(severity: Severity, source: str, why: str, fix: str = "") -> Finding:
    code = "not-translated" if severity is Severity.ERROR else "no-counterpart"
    return Finding(code, severity, _printable(source), _printable(why), _printable(fix))


def _printable(text: str) -> str:
    """A text that may quote the input, in one line, and without what a terminal would take as a command."""
    return "".join(character if character.isprintable() else "?" for character in text[:400])


def translated(read: Iterable[Read]) -> Translation:
    """Reads the variables as a start does. If one is given twice, the last counts, and objects are put together.

    :raises SettingError: there is no setting at all.
    """
    findings, settings, config = list[Finding](), dict[str, Given](), None
    for entry in read:
        if isinstance(entry, Given) and not entry.variable.isidentifier():
            entry = note(
                Severity.ERROR, entry.source, "no variable can have this name", "Give the object as one value."
            )
        if isinstance(entry, Finding):
            findings.append(entry)
            continue
        if is_empty_flag(entry.variable, entry.value):
            entry = entry._replace(value="true")
        other = settings.get(entry.variable)
        if other and isinstance(entry.value, dict) and isinstance(other.value, dict):
            entry = Given(f"{other.source}, {entry.source}", entry.variable, {**other.value, **entry.value})
        elif other:
            findings.append(note(Severity.INFO, other.source, "it is given again later, and the last one counts"))
        settings[entry.variable] = entry
        if len(settings) > 500:
            raise SettingError("the input", "has more than 500 settings", FIX)
    while config is None:
        environ = {name: entry.text for name, entry in settings.items()}
        try:
            config = load(environ, fetch=lambda _: None)
        except SettingError as errors:
            for error in each(errors):
                name, dot, path = error.setting.partition(".")
                source = settings.pop(name).source if name in settings else name
                severity = Severity.INFO if "does not run here" in error.problem else Severity.ERROR
                findings.append(note(severity, f"{source}{dot}{path}", error.problem, error.fix))
            if len(settings) == len(environ):
                raise
    used = {source.name.partition(".")[0] for source in config.sources.values()}
    for name in [name for name in settings if name not in used]:
        findings.append(
            note(Severity.INFO, settings.pop(name).source, config.unused.get(name, "it changes nothing here"))
        )
    if not settings:
        reasons = "; ".join(dict.fromkeys(f"{entry.setting}: {entry.why}" for entry in findings[:8]))
        raise SettingError("the input", f"holds no setting of an endpoint{reasons and f' ({reasons})'}", FIX)
    return Translation(config, settings, tuple(dict.fromkeys(findings)))
