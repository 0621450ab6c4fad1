"""The result of a check: a setting that would fail, or silently be replaced, after an hour of compiling."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from handler.errors.base import one_line


class Severity(StrEnum):
    """ERROR stops the start. WARNING does not. INFO explains a choice that was made for the user."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    :param code: a stable name to search for, in kebab-case: `hyphenated-override`.
    :param setting: the setting at fault, by the name that the user wrote, if any.
    :param why: what would happen, and how that is known.
    :param fix: what to change, and the value to change it to.
    """

    code: str
    severity: Severity
    setting: str
    why: str
    fix: str

    def __post_init__(self) -> None:
        for field in ("setting", "why", "fix"):  # they name files of a model, and show values
            object.__setattr__(self, field, one_line(getattr(self, field)))

    def document(self) -> dict[str, str]:
        return {**asdict(self), "severity": self.severity.value}


def conflict(setting: str, value: object, other: str, other_value: object) -> Finding:
    """The error for two settings that give the same thing different values."""
    why = f"{setting} is {str(value)[:60]}, but {other} is {str(other_value)[:60]}"
    return Finding("conflicting-settings", Severity.ERROR, setting, why, f"Keep one of {setting} and {other}.")
