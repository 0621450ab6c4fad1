"""Which variables hold a secret: by their name, or because their value is an address with a password in it."""

from __future__ import annotations

import re
from typing import Final

# MAX_NUM_BATCHED_TOKENS and TOKEN_GENERATION_BUCKETS are not secrets. OTEL_EXPORTER_OTLP_HEADERS holds API keys.
NAMES: Final = re.compile(r"(?:^|_)TOKEN$|SECRET|PASSWORD|CREDENTIAL|API_KEY|ACCESS_KEY|OTLP(?:_\w+)?_HEADERS$")
# As in a package index or a proxy: https://user:password@host
ADDRESS: Final = re.compile(r"://[^/\s@]+@")


def is_secret(name: str, value: str) -> bool:
    return bool(NAMES.search(name.upper()) or ADDRESS.search(value))
