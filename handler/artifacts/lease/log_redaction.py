"""Shortens a log to its end and removes secrets, so that it can be stored where others read it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from handler.config.secret_values import is_secret

MOST_BYTES = 8192
MOST_LINES = 80
MASK = "[removed]"
# Shorter values of secret variables ("1", "true") are not secrets, and would mask half of the log.
SHORTEST = 6
# How much of the log's end is searched, in characters.
MOST_READ = 1_000_000
# TOKENS: hub tokens, AWS access key ids, the beginning of private keys. NAMED: the value after a name of a secret
# (`token=...`, `Authorization: Bearer ...`, `X-Amz-Signature=...`), but not `max_tokens=128`. IN_URL: a password in a
# URL.
TOKENS = re.compile(r"\bhf_[A-Za-z0-9]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*")
NAMED = re.compile(
    r"(?i)((?:token|secret|passw(?:or)?d|credential|signature|api[_-]?key|access[_-]?key|authorization)[\w-]{0,64}"
    r"[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?)(?![\d.]+\b)[^\s\"',;&(){}\[\]]{6,}"
)
IN_URL = re.compile(r"(://[^/\s:@]+:)[^/\s@]+(?=@)")


def tail(log: str, environ: Mapping[str, str], most: int = MOST_BYTES) -> str:
    """Returns the last lines of a log without secrets, at most `most` bytes of UTF-8.

    :param environ: the process's variables. The values of those with a secret's name are removed everywhere.
    """
    lines = redacted(log[-MOST_READ:], environ).splitlines()[-MOST_LINES:]
    text = "\n".join("".join(c for c in line if c.isprintable() or c == "\t") for line in lines)
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[-most:].decode(errors="ignore")


def redacted(text: str, environ: Mapping[str, str]) -> str:
    """Returns the text without values that look like secrets."""
    known = [value for name, value in environ.items() if is_secret(name, value) and len(value) >= SHORTEST]
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, MASK)
    text = TOKENS.sub(MASK, text)
    text = NAMED.sub(lambda match: match.group(1) + MASK, text)
    return IN_URL.sub(lambda match: match.group(1) + MASK, text)
