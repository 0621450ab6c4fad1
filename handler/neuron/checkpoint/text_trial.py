"""Loads a tokenizer and compiles a chat template in a process of its own, with limits on time and memory.

Both come with the model, and take the whole interpreter meanwhile. A tokenizer of some MB can take gigabytes, and a
template such as `{{ 9**9**9 }}` is computed while it is compiled.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from functools import lru_cache
from typing import Any, Final

SECONDS: Final = 10
MIB: Final = 1 << 20


@lru_cache(maxsize=4)  # a start looks twice
def tried(tokenizer: str | None, template: str | None, asked: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the engine's libraries say of the text of a tokenizer.json and of a template.

    :returns: `size` (one more than the largest id) and `absent` (of the asked tokens), or `tokenizer`: why it cannot be
        read, or `missing`: it is not installed. `template`: its error. `died`: the process met a limit.
    """
    document = json.dumps([tokenizer, template, asked]).encode()
    command = [sys.executable, "-P", "-m", __name__, str(256 * MIB + 16 * len(document))]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "RAYON_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, input=document, capture_output=True, timeout=6 * SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return {"died": True}
    if done.returncode:
        return {"died": True} if done.returncode < 0 else {"missing": True}
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def _try(tokenizer: str | None, template: str | None, asked: list[str]) -> dict[str, Any]:
    outcome: dict[str, Any] = {} if template is None else {"template": _template_error(template)}
    if tokenizer is None:
        return outcome
    try:
        from tokenizers import Tokenizer

        loaded = Tokenizer.from_str(tokenizer)
    except ImportError:
        return {**outcome, "missing": True}
    except Exception as error:  # the library raises nothing narrower
        return {**outcome, "tokenizer": str(error)[:200]}
    absent = [token for token in asked if loaded.token_to_id(token) is None]
    return {**outcome, "absent": absent, "size": 1 + max(loaded.get_vocab().values(), default=-1)}


def _template_error(text: str) -> str:
    """Compiles a template as transformers does (4.57, utils/chat_template_utils.py, _compile_jinja_template)."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    try:
        # A block of transformers' own, which marks what the assistant says.
        environment.from_string(re.sub(r"{%-?\s*(end)?generation\s*-?%}", "", text))
    except (TemplateError, RecursionError, SyntaxError, ValueError) as error:
        return f"{str(error)[:150]}, line {getattr(error, 'lineno', '?')}"
    return "" if text.strip() else "it is empty"


if __name__ == "__main__":
    given = json.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    print(json.dumps(_try(*given)))
