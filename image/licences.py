"""Prints name, version and licence of each component of a CycloneDX bill of materials: ``python licences.py FILE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(bill: Path) -> int:
    for component in sorted(json.loads(bill.read_text())["components"], key=lambda each: each["name"].lower()):
        stated = [each.get("expression") or licence(each["license"]) for each in component.get("licenses", ())]
        print(
            component["name"],
            component.get("version", ""),
            " AND ".join(dict.fromkeys(stated)) or "not stated",
            sep="\t",
        )
    return 0


def licence(stated: dict[str, str]) -> str:
    """The SPDX identifier or the name. Some packages state their whole licence as its name."""
    return (stated.get("id") or stated["name"]).partition("\n")[0].strip()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
