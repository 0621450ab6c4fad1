"""The names of a store's objects, below its root.

    manifests/<kind>/<key>.json   an entry; written last, so that a reader who finds none finds nothing
    objects/<2 digits>/<digest>   the bytes of every file with this digest, of whichever entry
    pins/<kind>/<key>             this entry is never deleted
    condemned/<digest>            an object that will be collected unless somebody needs it (`collection`)

Other names below the same root (leases, failures) are other modules' own.
"""

from __future__ import annotations

import re

KINDS = ("graph", "weights")
MANIFESTS, OBJECTS, PINS, CONDEMNED = "manifests/", "objects/", "pins/", "condemned/"
_HEX = re.compile(r"[0-9a-f]{64}")


def manifest_name(kind: str, key: str) -> str:
    return f"{MANIFESTS}{_kind(kind)}/{_hex(key)}.json"


def pin_name(kind: str, key: str) -> str:
    return f"{PINS}{_kind(kind)}/{_hex(key)}"


def object_name(digest: str) -> str:
    return f"{OBJECTS}{_hex(digest)[:2]}/{digest}"


def condemned_name(digest: str) -> str:
    return f"{CONDEMNED}{_hex(digest)}"


def of_manifest(name: str) -> tuple[str, str] | None:
    """Kind and key of a manifest's name; None for whatever else lies there."""
    kind, _, file = name.removeprefix(MANIFESTS).partition("/")
    key = file.removesuffix(".json")
    return (kind, key) if kind in KINDS and file.endswith(".json") and _HEX.fullmatch(key) else None


def digest_of(name: str) -> str | None:
    """The digest that an object or a `condemned` mark is named by; None for whatever else lies there."""
    digest = name.rpartition("/")[2]
    return digest if _HEX.fullmatch(digest) else None


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, not one of {KINDS}")
    return kind


def _hex(digest: str) -> str:
    if not _HEX.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is not 64 hexadecimal digits")
    return digest
