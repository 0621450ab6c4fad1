"""Installs what a lock names and the base image lacks, with a check of every file's hash.

``python install_locked.py LOCK TARGET [ROOTS]`` runs in the build of an image. A package of the base image is never
changed or hidden: vLLM, torch and the Neuron plugin belong to it, with pins of their own. ROOTS is a file of
requirements. If the versions of the base do not satisfy them, or what they need in turn, the build ends.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name


def installed(*directories: str) -> dict[str, Distribution]:
    """The packages of the directories, by name. The first directory that has a package takes precedence."""
    found: dict[str, Distribution] = {}
    for distribution in distributions(path=list(directories)):
        found.setdefault(canonicalize_name(distribution.metadata["Name"]), distribution)
    return found


def entries(lock: str) -> Iterator[tuple[Requirement, str]]:
    """Each requirement of a lock for this Python, and its text with the hashes."""
    for text in re.split(r"\n(?=[A-Za-z0-9])", lock.replace("\\\n", " ")):
        stated = text.partition("--hash")[0].strip()
        if stated and not stated.startswith("#"):
            requirement = Requirement(stated)
            if requirement.marker is None or requirement.marker.evaluate():
                yield requirement, text.strip()


def unsatisfied(roots: list[Requirement], present: dict[str, Distribution]) -> Iterator[str]:
    """What the requirements need, at any depth, and the packages do not satisfy."""
    waiting, seen = [(requirement, "this software") for requirement in roots], set()
    while waiting:
        requirement, parent = waiting.pop()
        name = canonicalize_name(requirement.name)
        distribution = present.get(name)
        if distribution is None or not requirement.specifier.contains(distribution.version, prereleases=True):
            has = distribution.version if distribution else "none"
            yield f"{parent} needs {requirement}, and the image has {has}"
        elif (name, *sorted(requirement.extras)) not in seen:
            seen.add((name, *sorted(requirement.extras)))
            for child in map(Requirement, distribution.requires or ()):
                extras = requirement.extras or {""}
                if child.marker is None or any(child.marker.evaluate({"extra": extra}) for extra in extras):
                    waiting.append((child, name))


def main(lock: Path, target: Path, roots: Path | None = None) -> int:
    base = [path for path in sys.path if path and Path(path) != target]
    there = installed(*base)
    missing = [
        text for requirement, text in entries(lock.read_text()) if canonicalize_name(requirement.name) not in there
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(missing))
        file.flush()
        options = ["--no-deps", "--no-compile", "--no-cache-dir", "--root-user-action=ignore", "--target", str(target)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", *options, "-r", file.name]
        subprocess.run(pip, check=True)
    print(f"Installed {len(missing)} packages. The base image has the others.")
    if roots is not None:
        stated = [requirement for requirement, _ in entries(roots.read_text())]
        problems = sorted(unsatisfied(stated, installed(*base, str(target))))
        print("".join(f"{problem}.\n" for problem in problems), end="")
        return 1 if problems else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
