"""How much one request body may hold: a bound for each list and text, in one table, whatever the schema.

vLLM reads these fields item by item while it holds the interpreter, or compares each with every token. Meanwhile nobody
else is answered. Measured on two cores without these bounds: 200,000 stop strings, 50,000 bad words or 1,000,000 stop
tokens delayed /ping by up to 9.4 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from handler.errors import InvalidField


@dataclass(frozen=True, slots=True)
class FieldLimit:
    """The bound of one field.

    :param items: how many items its list or object may have.
    :param characters: how many characters all its texts may have together; None: only the body's size counts.
    """

    field: str
    items: int
    characters: int | None


LIMITS: Final = (
    # Each item is compared with every token.
    FieldLimit("stop", 64, 4096),
    FieldLimit("stop_sequences", 64, 4096),
    FieldLimit("stop_token_ids", 1024, None),
    FieldLimit("bad_words", 256, 4096),
    # Each item is read before the request begins, while no other request is.
    FieldLimit("logit_bias", 1024, None),
    FieldLimit("allowed_token_ids", 262_144, None),
    FieldLimit("logprob_token_ids", 262_144, None),
    FieldLimit("messages", 4096, None),
    FieldLimit("tools", 4096, None),
    FieldLimit("documents", 4096, None),
    FieldLimit("chat_template_kwargs", 256, None),
    FieldLimit("mm_processor_kwargs", 256, None),
    FieldLimit("vllm_xargs", 256, None),
)


def check(document: Mapping[str, Any], prefix: str = "") -> None:
    """Checks a body, or the parameters of TGI and LMI, against the table.

    :param prefix: of the names in errors.
    :raises InvalidField: a list, an object or a text is larger than its bound.
    """
    for limit in LIMITS:
        value = document.get(limit.field)
        if value is None:
            continue
        if isinstance(value, list | dict) and len(value) > limit.items:
            raise InvalidField(
                prefix + limit.field, f"it has {len(value):,} items; one request may have {limit.items:,}"
            )
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else ()
        if (
            limit.characters is not None
            and sum(len(text) for text in texts if isinstance(text, str)) > limit.characters
        ):
            raise InvalidField(prefix + limit.field, f"its texts may have {limit.characters:,} characters together")
