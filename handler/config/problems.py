"""All that is wrong with a configuration, at once: a user fixes five settings in one go, not in five deployments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handler.errors import SettingError

MASK = "***"
# So many of a secret's first characters already tell it from other text.
TELLING = 8


class SettingErrors(SettingError):
    """One or more settings that cannot work. A `SettingError` itself, so that one `except` serves both.

    :param errors: at least one, in the order in which they were found.
    """

    def __init__(self, errors: Sequence[SettingError]) -> None:
        first = errors[0]
        super().__init__(first.setting, first.problem, first.fix)
        self.errors = tuple(errors)
        self.message = "\n".join(error.message for error in errors)
        self.args = (self.message,)


class BadValue(ValueError):
    """A value that does not fit: raised by converters, which do not know the setting's name.

    :param fix: without the full stop at its end.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}. {fix}")
        self.problem, self.fix = problem, fix

    def named(self, setting: str) -> SettingError:
        return SettingError(setting, self.problem, f"{self.fix}.")


def each(error: SettingError) -> tuple[SettingError, ...]:
    """The single errors in an error."""
    return error.errors if isinstance(error, SettingErrors) else (error,)


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, wherever they ended up in it; also where a message cut one off at its end."""
    for secret in sorted(secrets, key=len, reverse=True):
        start = secret[:TELLING]
        position = text.find(start)
        while position >= 0:
            end = position + len(start)
            while end < len(text) and text[position : end + 1] == secret[: end + 1 - position]:
                end += 1
            text = f"{text[:position]}{MASK}{text[end:]}"
            position = text.find(start, position + len(MASK))
    return text


def masked(error: SettingError, secrets: Iterable[str]) -> SettingError:
    """The same error without the secrets."""
    known = tuple(secrets)
    return SettingError(mask(error.setting, known), mask(error.problem, known), mask(error.fix, known))
