"""What becomes of one setting in a migration to the native plugin."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from handler.config.config_rows import json_value, without_secrets
from handler.config.secret_values import mask
from handler.json_value import Json


class Outcome(StrEnum):
    """KEPT has the same meaning there. AUTOMATIC needs no setting there. UNAVAILABLE has a consequence."""

    KEPT = "kept"
    TRANSLATED = "translated"
    AUTOMATIC = "automatic"
    UNAVAILABLE = "not available"


@dataclass(frozen=True, slots=True)
class MigratedSetting:
    """One row of the table.

    :param setting: the name that the user wrote.
    :param value: its value, with every secret masked.
    :param note: the native setting, the reason, or the consequence.
    """

    setting: str
    value: Json
    outcome: Outcome
    note: str


@dataclass(frozen=True, slots=True)
class SettingTable:
    """The rows, in the order in which they are added. `secrets` are masked in the values."""

    secrets: tuple[str, ...]
    rows: list[MigratedSetting] = field(default_factory=list)

    def add(self, setting: str, value: object, outcome: Outcome, note: str) -> None:
        visible = without_secrets(json_value(value), self.secrets, setting)
        self.rows.append(MigratedSetting(mask(setting, self.secrets), visible, outcome, note))
