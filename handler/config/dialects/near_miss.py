"""Finds the known name that a misspelt name is closest to, for "Did you mean ...?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

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


def slip(name: str, known: Iterable[str]) -> str | None:
    """The known name that differs from this one by one or two letters, or None."""
    near = difflib.get_close_matches(name, [other for other in known if other != name], n=1, cutoff=0.92)
    return near[0] if near else None
