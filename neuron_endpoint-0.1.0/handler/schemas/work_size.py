"""How much work a body and a reply are, in bytes: whoever serves a loop does what is much in a thread."""

from __future__ import annotations

import math
from typing import Final

from handler.engine.engine import Engine
from handler.schemas.framing import unframed
from handler.schemas.reply import AnyCall, Call

# The size of what takes long for another reason than its bytes.
LARGE: Final = math.inf


def body_size(body: bytes, engine: Engine) -> float:
    """A tokenizer that is not compiled takes long for any body."""
    return len(body) if engine.prompts.compiled else LARGE


def reply_size(call: AnyCall) -> float:
    """Plain text is small. Log probabilities and several sequences are not."""
    inner = unframed(call)
    return 0 if isinstance(inner, Call) and inner.generation.scores is None else LARGE
