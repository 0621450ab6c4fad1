"""Writes docs/guides.md and docs/guides/*.md from the facts. `make docs` runs it, and a test compares them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.guides.fact_run import text
from tests.guides.guide_facts import Fact, Guide, guides
from tests.starts.start_list import recorded, started

DOCS = Path(__file__).parents[2] / "docs" / "guides"
WORDS = {
    "works": "works",
    "said": "works; `check` says",
    "warned": "works; `check` warns",
    "rejected": "rejected",
    "engine": "belongs to the engine",
}
TEST = "tests/guides/test_guide_facts.py"
INDEX = """# The five guides, fact by fact

Five guides describe vLLM on Neuron. These pages list what each of them asks of a configuration or a request, one row
for each fact, with what it is here. Each row is a test:

- A row with settings is run. `{test}` types them into an environment file, runs
  `neuron-endpoint check` and `plan`, and compares the finding, the setting that it names, the exit status and the plan.
- If its line has an engine here, it is also started (`make test-starts`): the whole start, with the line's own parser
  and platform rules, the core's process and the warm-up, then a greedy and a sampled request, and the row's own body if
  it has one. `tests/starts/record.json` has what came of it, and no row says "started" that is not there.
- A row with a test of its own names it.

The engines are the CPU's, and stand-ins for the NxDI plugin (`nxdi-0.16`) and for the native plugin over the CPU worker
of the line's own vLLM ([what they keep](../tests/neuron_stand_in/README.md)). So a start shows that the configuration
is accepted, that the graphs' lengths and batches fit the requests, and that the endpoint's own limits do. It does not
show what a device computes. In the place of a large model stands a tiny one of the same architecture
(`tests/starts/start_models.py`).

`optimum`, `fork-0.9.1` and `fork-0.9.1-tnx` are started by their own Python over a double of what is compiled
(`tests/lines`, which `make test-lines` serves whole). For `optimum` the tiny model is an export of the plan's shape.
"planned" means that `plan` writes the arguments, because the line is for plans only.
`models/NAME` in a setting is a directory with the `config.json` of such a model.

Not listed are the steps that set up an instance, a virtual environment or a build from source: they belong to the base
image. Some facts no file tells, so no check finds them: whether a draft is tuned for instructions as its target is, and
whether an adapter or a draft was trained well. Compare the answers (`neuron-endpoint accuracy`).

{starts} different sets of settings were started: {guides} of the guides, {recipes} recipes, {commands} of the guides'
commands (as `neuron-endpoint translate` reads them), and {lines} of the rows of [the lines' page](neuron-lines.md).

| guide | facts | started and answered | planned only | shown by a test or a command | rejected | the engine's |
| --- | --- | --- | --- | --- | --- | --- |
"""


def index() -> str:
    rows = []
    for guide in guides():
        count = Counter(kind(fact) for fact in guide.facts)
        numbers = [len(guide.facts), *(count[name] for name in ("started", "planned", "tested", "rejected", "engine"))]
        rows.append(f"| [{guide.title}](guides/{guide.name}.md) | {' | '.join(map(str, numbers))} |\n")
    numbers_of = Counter(re.split(r"[ -]", entry["number"])[0] for entry in recorded().values())
    others = {f"{name}s": numbers_of[name] for name in ("recipe", "command")} | {"lines": numbers_of["lines"]}
    total = numbers_of.total()
    guides_own = total - sum(others.values())
    return INDEX.format(test=TEST, starts=total, guides=guides_own, **others) + "".join(rows)


def kind(fact: Fact) -> str:
    """The column of a fact."""
    if fact.here in ("rejected", "engine"):
        return fact.here
    if not fact.typed:
        return "tested"
    start = started(fact)
    return "started" if start is not None and start.settings in recorded() else "planned"


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
    if fact.typed and fact.here != "rejected":
        words = [words[0].replace("works", kind(fact))]
    if fact.param:
        words = [f"rejected with a 400 that names `{fact.param}`"]
    elif fact.finding:
        words[0] += f" `{fact.finding}`"
        words.append(f"names `{fact.setting}`")
    return "; ".join((*words, fact.note) if fact.note else words)


def _shown(fact: Fact) -> str:
    if fact.test:
        return f"`{fact.test}`"
    shown, start = f"`test_guide_facts[{fact.number}]`", started(fact)
    if start is None or kind(fact) != "started":
        return shown
    return f"{shown}, `test_starts[{recorded()[start.settings]['number']}]`"


def write() -> None:
    DOCS.mkdir(exist_ok=True)
    for guide in guides():
        (DOCS / f"{guide.name}.md").write_text(page(guide), encoding="utf-8")
    (DOCS.parent / "guides.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    write()
