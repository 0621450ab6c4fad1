"""The names of the objects in a store, below its root.

    manifests/<kind>/<key>.json   the manifest of an entry; written last, so that an incomplete entry is not visible
    objects/<2 digits>/<digest>   the content of every file with this digest, in any entry
    pins/<kind>/<key>             protects this entry from deletion
    gc-marks/<digest>             marks an object for deletion by a later garbage collection (`gc_marks`)

The modules of leases and failures define their own names below the same root.
"""

from __future__ import annotations

import re

KINDS = ("graph", "weights")
MANIFESTS, OBJECTS, PINS, GC_MARKS = "manifests/", "objects/", "pins/", "gc-marks/"
_HEX = re.compile(r"[0-9a-f]{64}")


def manifest_name(kind: str, key: str) -> str:
    return f"{MANIFESTS}{_kind(kind)}/{_hex(key)}.json"


def pin_name(kind: str, key: str) -> str:
    return f"{PINS}{_kind(kind)}/{_hex(key)}"


def object_name(digest: str) -> str:
    return f"{OBJECTS}{_hex(digest)[:2]}/{digest}"


def gc_mark_name(digest: str) -> str:
    return f"{GC_MARKS}{_hex(digest)}"


def of_manifest(name: str) -> tuple[str, str] | None:
    """Returns kind and key from the name of a manifest; None for another name."""
    kind, _, file = name.removeprefix(MANIFESTS).partition("/")
    key = file.removesuffix(".json")
    return (kind, key) if kind in KINDS and file.endswith(".json") and _HEX.fullmatch(key) else None


def digest_of(name: str) -> str | None:
    """Returns the digest from the name of an object or a mark; None for another name."""
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
