"""How many tokens a request took and made, where the engine's own classes answer it and hand us no tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TokenCounts:
    """One request's; counted on the engine's loop, read when the request has ended.

    :ivar prompt: of every prompt of it. :ivar output: of every sequence of it, those of a client that left included.
    """

    prompt: int = 0
    output: int = 0
