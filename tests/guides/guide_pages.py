"""Writes docs/guides.md and docs/guides/*.md from the facts. `make docs` runs it, and a test compares them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fact_run import text
from guide_facts import Fact, Guide, guides

DOCS = Path(__file__).parents[2] / "docs" / "guides"
WORDS = {
    "works": "works",
    "said": "works; `check` says",
    "warned": "works; `check` warns",
    "rejected": "rejected",
    "engine": "belongs to the engine",
    "platform": "belongs to the base image or the platform",
}
TEST = "tests/guides/test_guide_facts.py"
INDEX = """# The five guides, fact by fact

Five guides describe vLLM on Neuron. These pages list what each of them asks, one row for each fact, with what it is
here. Each row is a test:

- A row with settings is run. `{test}` types them into an environment file, runs
  `neuron-endpoint check` and `plan`, and compares the finding, the setting that it names, the exit status and the plan.
- A row with a test of its own names it.
- A row about the base image, the platform or the engine names the page that says so, or a test over a real engine.

`models/NAME` in a setting is a directory with the `config.json` of such a model. `fork-0.7.2`, `fork-0.9.1` (with
transformers-neuronx too) and `optimum` are lines for plans only: there, "works" means that `plan` writes the
arguments, and `check` says `line-not-served`.

Some facts no file tells, so no check finds them: whether a draft is tuned for instructions as its target is, and
whether an adapter or a draft was trained well. Compare the answers (`neuron-endpoint accuracy`).

| guide | facts | works | works, `check` says or warns | rejected | the engine's | the base image's or the platform's |
| --- | --- | --- | --- | --- | --- | --- |
"""


def index() -> str:
    rows = []
    for guide in guides():
        count = Counter(fact.here for fact in guide.facts)
        numbers = (
            len(guide.facts),
            count["works"],
            count["said"] + count["warned"],
            count["rejected"],
            count["engine"],
            count["platform"],
        )
        rows.append(f"| [{guide.title}](guides/{guide.name}.md) | {' | '.join(map(str, numbers))} |\n")
    return INDEX.format(test=TEST) + "".join(rows)


def page(guide: Guide) -> str:
    """A table for each section of the guide."""
    default = f"Where a row names no line, it is `{guide.line}` on `{guide.instance}`, with `{guide.model}`."
    parts, section = [f"# {guide.title}\n\n{default}\n"], ""
    for fact in guide.facts:
        if fact.section != section:
            section = fact.section
            parts.append(
                f"\n## {section}\n\n| | what it asks | as typed | here | shown by |\n| --- | --- | --- | --- | --- |\n"
            )
        cells = (fact.number.rpartition("-")[2], fact.asks, _typed(guide, fact), _here(fact), _shown(fact))
        parts.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return "".join(parts)


def _typed(guide: Guide, fact: Fact) -> str:
    if fact.command:
        return f"`neuron-endpoint {fact.command}`"
    differs = {name: getattr(fact, name) for name in ("model", "line", "instance") if fact.typed}
    words = [f"{name} `{value or 'not given'}`" for name, value in differs.items() if value != getattr(guide, name)]
    words += [f"`{name}={text(value)}`" for name, value in (fact.env or {}).items()]
    if fact.request is not None:
        words.append(f"a body with `{text(dict(fact.request))}`")
    return ", ".join(words)


def _here(fact: Fact) -> str:
    words = [WORDS[fact.here]]
    if fact.param:
        words = [f"rejected with a 400 that names `{fact.param}`"]
    elif fact.finding:
        words[0] += f" `{fact.finding}`"
        words.append(f"names `{fact.setting}`")
    elif fact.page:
        place = fact.page.replace("docs/", "../") if fact.page.startswith("docs/") else f"../../{fact.page}"
        words[0] += f": [{Path(fact.page).name}]({place})"
    return "; ".join((*words, fact.note) if fact.note else words)


def _shown(fact: Fact) -> str:
    if fact.test:
        return f"`{fact.test}`"
    return "its page" if fact.page else f"`test_guide_facts[{fact.number}]`"


def write() -> None:
    DOCS.mkdir(exist_ok=True)
    for guide in guides():
        (DOCS / f"{guide.name}.md").write_text(page(guide), encoding="utf-8")
    (DOCS.parent / "guides.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    write()
