"""Words that this project does not use, because a standard term says it (CONTRIBUTING.md, "Style")."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# History, licences, and the sample model's answers, which are in its weights.
LEFT_AS_THEY_ARE = (
    "CHANGELOG.md",
    "container/page/vendor/",
    "LICENSE",
    "sample_model/",
    "requirements/",
    "tests/test_words.py",
)
# word or phrase -> what to write
WORDS = {
    r"\bmend(s|ed|ing)?\b|_mends?\b|\bmends?_": "fix",
    r"refuse[sd]? by name": "rejected with an error that names the field",
    r"\bGrounds?\b|\bground_of\b": "artifact backend, context",
    r"\bleftovers?\b": "ignored fields",
    r"\bcondemn\w*": "mark (garbage collection)",
    r"\bpulse\b": "heartbeat",
    r"\bnot the caller's to give\b": "is set by the server",
    r"\bthere and then\b": "inline",
    r"\btells? no log prob": "returns no log probabilities",
    r"\bstill turns?\b|\bno longer turns\b": "makes progress",
    r"\bconfinement\b": "safe paths",
}


@cache
def texts() -> dict[str, str]:
    """The text of each file, by its path from the root."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kinds = {".py", ".md", ".toml", ".yaml", ".ipynb", ".js", ".html", ""}
    return {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in listed.splitlines()
        if not name.startswith(LEFT_AS_THEY_ARE) and Path(name).suffix in kinds and (ROOT / name).is_file()
    }


@pytest.mark.parametrize("word", WORDS)
def test_the_word_is_not_used(word: str) -> None:
    pattern = re.compile(word, re.IGNORECASE if word.islower() else 0)
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts().items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == [], f"write: {WORDS[word]}"


# package -> how often a variable has one of these names. They say nothing about what it holds: only fewer are allowed.
VAGUE = ("found", "given", "one", "wanted")
MOST_VAGUE = {
    "handler/config/": 0,
    "handler/neuron/": 78,
    "handler/custom_code/": 0,
    "handler/schemas/": 0,
    "model_packaging/": 148,
}


@pytest.mark.parametrize("package", MOST_VAGUE)
def test_variables_are_named_for_what_they_hold(package: str) -> None:
    uses = 0
    for name, text in texts().items():
        if name.startswith(package) and name.endswith(".py"):
            nodes = list(ast.walk(ast.parse(text)))
            uses += sum(node.id in VAGUE for node in nodes if isinstance(node, ast.Name))
            uses += sum(node.arg in VAGUE for node in nodes if isinstance(node, ast.arg))
    assert uses <= MOST_VAGUE[package], "name it for what it holds, or lower the number here"
