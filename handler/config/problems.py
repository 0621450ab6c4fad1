"""Errors of a configuration. All are reported together, so that a user fixes five settings in one deployment."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from handler.config.secret_values import MASK, has_secret_name, mask
from handler.errors import SettingError

# What a message quotes.
QUOTED: Final = re.compile(r"(['\"]).*\1")


class SettingErrors(SettingError):
    """One or more settings that cannot work. It is a `SettingError` itself, so that one `except` catches both.

    :param errors: at least one, in the order in which they were found.
    """

    def __init__(self, errors: Sequence[SettingError]) -> None:
        first = errors[0]
        super().__init__(first.setting, first.problem, first.fix)
        self.errors = tuple(errors)
        self.message = "\n".join(error.message for error in errors)
        self.args = (self.message,)


class BadValue(ValueError):
    """A value that does not fit. Converters raise it; they do not know the name of the setting.

    :param fix: a sentence without its full stop.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}. {fix}")
        self.problem, self.fix = problem, fix

    def named(self, setting: str) -> SettingError:
        return SettingError(setting, self.problem, f"{self.fix}.")


def each(error: SettingError) -> tuple[SettingError, ...]:
    """The errors that an error consists of."""
    return error.errors if isinstance(error, SettingErrors) else (error,)


def masked(error: SettingError, secrets: Iterable[str]) -> SettingError:
    """The same error with every secret masked. Of a setting with a secret's name, that is whatever is quoted."""
    known, problem = tuple(secrets), error.problem
    if has_secret_name(error.setting.partition(" in ")[0]):
        problem = QUOTED.sub(f"'{MASK}'", problem)
    return SettingError(mask(error.setting, known), mask(problem, known), mask(error.fix, known))


def unknown(setting: str, name: str, known: Iterable[str], prefix: str, what: str) -> SettingError:
    """The error for an unknown name. It suggests the closest known name.

    :param name: the part of the setting that was looked up among `known`.
    :param prefix: put before the suggested name, so that a user can paste it.
    """
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    fix = (
        f"Did you mean {prefix}{near[0]}?"
        if near
        else "Remove it, or look it up with `neuron-endpoint config explain`."
    )
    return SettingError(setting, f"is not {what}", fix)


def reject_near_miss(name: str, known: Collection[str], what: str) -> None:
    """:raises SettingError: the name differs from a known one, which the error suggests, by one or two letters."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.92)
    if near and name not in known:
        raise SettingError(name, f"is not {what}", f"Did you mean {near[0]}?")
