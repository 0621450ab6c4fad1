"""Finds the known name that a misspelt name is closest to, for "Did you mean ...?"."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from handler.errors import SettingError


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
    """Rejects a variable whose name differs from a known one by one or two letters.

    :raises SettingError: the error suggests the known name.
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.92)
    if near and name not in known:
        raise SettingError(name, f"is not {what}", f"Did you mean {near[0]}?")
