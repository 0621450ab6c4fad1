"""What a check finds: something that will fail, or fall back in silence, an hour from now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """ERROR stops the start, WARNING does not, INFO explains a choice made for the user."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    :param code: stable and searchable, in kebab-case: `hyphenated-override`.
    :param setting: the setting at fault, by the name the user gave it where one was given.
    :param why: what would happen, and where it is known from.
    :param fix: what to change, to what.
    """

    code: str
    severity: Severity
    setting: str
    why: str
    fix: str

    def document(self) -> dict[str, str]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "setting": self.setting,
            "why": self.why,
            "fix": self.fix,
        }
