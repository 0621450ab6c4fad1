"""What JSON can hold, as a type."""

from __future__ import annotations

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
