"""What the sample model knows: questions.toml as typed values.

Only the standard library is needed, so a test can ask for the expected answers without loading torch.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

QUESTIONS = Path(__file__).parent / "questions.toml"


@dataclass(frozen=True, slots=True)
class Fact:
    """One answer and the phrasings of the question that lead to it; the first phrasing is the usual one."""

    name: str
    answer: str
    questions: tuple[str, ...]


def load(path: Path = QUESTIONS) -> tuple[Fact, ...]:
    """Every fact, in the order of the file."""
    with path.open("rb") as file:
        entries = tomllib.load(file)["fact"]
    return tuple(Fact(entry["name"], entry["answer"], tuple(entry["questions"])) for entry in entries)


def by_name(name: str) -> Fact:
    """The fact of that name; a KeyError when there is none."""
    return {fact.name: fact for fact in load()}[name]
