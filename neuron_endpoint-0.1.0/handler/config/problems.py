"""Errors of a configuration. All are reported together, so that a user fixes five settings in one deployment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handler.errors import SettingError

MASK = "***"
# This many first characters of a secret are enough to recognise it in a text.
RECOGNISABLE = 8


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


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret masked, also a secret that the message cut off."""
    for secret in sorted(secrets, key=len, reverse=True):
        start = secret[:RECOGNISABLE]
        position = text.find(start)
        while position >= 0:
            end = position + len(start)
            while end < len(text) and text[position : end + 1] == secret[: end + 1 - position]:
                end += 1
            text = f"{text[:position]}{MASK}{text[end:]}"
            position = text.find(start, position + len(MASK))
    return text


def masked(error: SettingError, secrets: Iterable[str]) -> SettingError:
    """The same error with every secret masked."""
    known = tuple(secrets)
    return SettingError(mask(error.setting, known), mask(error.problem, known), mask(error.fix, known))
