"""Loads a tokenizer and compiles chat templates in a process of its own, with limits on time and memory.

Both come with the model. A tokenizer of some MB can take gigabytes to read, and a template such as `{{ 9**9**9 }}` is
computed while it is compiled. Both take the whole interpreter meanwhile.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from functools import lru_cache
from typing import Any, Final

SECONDS: Final = 10
MIB: Final = 1 << 20


@lru_cache(maxsize=4)  # a start looks twice
def tried(tokenizer: str | None, templates: tuple[str, ...], asked: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the libraries of the engine say.

    :param tokenizer: the text of tokenizer.json.
    :param asked: tokens to look up.
    :returns: `size` (one more than the largest id) and `ids` of the asked tokens, or `tokenizer`: why it cannot be
        read, or `missing`: the library is not installed; `templates`: for each its error, or "". Or `died`, if the
        process did not end within its limits.
    """
    document = json.dumps({"tokenizer": tokenizer, "templates": templates, "asked": asked})
    command = [sys.executable, "-P", "-m", __name__, str(256 * MIB + 16 * len(document))]
    path = [place for place in sys.path if place]
    try:
        done = subprocess.run(
            command,
            input=document.encode(errors="surrogatepass"),
            capture_output=True,
            timeout=6 * SECONDS,
            env={"PYTHONPATH": ":".join(path), "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"},
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return {"died": True, "templates": []}
    return found


def _try(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"templates": [_template_error(text) for text in document["templates"]]}
    if document["tokenizer"] is None:
        return found
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return {**found, "missing": "tokenizers"}
    try:
        tokenizer = Tokenizer.from_str(document["tokenizer"])
    except Exception as error:  # the library raises nothing narrower
        return {**found, "tokenizer": str(error)[:200]}
    ids = {token: tokenizer.token_to_id(token) for token in document["asked"]}
    return {**found, "ids": ids, "size": 1 + max(tokenizer.get_vocab().values(), default=-1)}


def _template_error(text: str) -> str:
    """Compiles a template as transformers does (4.57, utils/chat_template_utils.py, _compile_jinja_template)."""
    from jinja2 import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The block `{% generation %}`, which marks an assistant's tokens."""

        tags = {"generation"}  # noqa: RUF012  as jinja2 declares it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    try:
        environment.from_string(text)
    except (TemplateError, RecursionError, SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return f"{str(error)[:150]}{f', line {line}' if line else ''}" or type(error).__name__
    return ""


if __name__ == "__main__":
    given = sys.stdin.buffer.read()
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    print(json.dumps(_try(json.loads(given))))
