"""Did you mean ...?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from handler.errors import SettingError


def unknown(setting: str, name: str, known: Iterable[str], prefix: str, what: str) -> SettingError:
    """The error for a name that is not known, with the nearest one that is.

    :param name: the part of the setting that was looked up; `known` are its peers.
    :param prefix: put before the nearest name, so that it can be pasted.
    """
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    fix = (
        f"Did you mean {prefix}{near[0]}?"
        if near
        else "Remove it, or look it up with `neuron-endpoint config explain`."
    )
    return SettingError(setting, f"is not {what}", fix)


def slip(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one is a slip away from: one or two letters, not merely similar."""
    near = difflib.get_close_matches(name, [other for other in known if other != name], n=1, cutoff=0.92)
    return near[0] if near else None
