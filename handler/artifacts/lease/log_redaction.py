"""The end of a log, fit to be kept where others read it: short, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from handler.artifacts.identity.key_exclusions import SECRET

MOST_BYTES = 8192
MOST_LINES = 80
MASK = "[removed]"
# Shorter values of secret variables ("1", "true") would mask half the log and are no secrets.
SHORTEST = 6
# What is looked at of a log at all, in characters.
MOST_READ = 1_000_000
# Hub tokens, AWS access key ids, private keys' first lines; then what follows a telling name: `token=...`,
# `Authorization: Bearer ...`, `X-Amz-Signature=...`, but not `max_tokens=128`; then a password in a URL.
TOKENS = re.compile(r"\bhf_[A-Za-z0-9]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*")
NAMED = re.compile(
    r"(?i)([\w-]*(?:token|secret|passw(?:or)?d|credential|signature|api[_-]?key|access[_-]?key|authorization)[\w-]*"
    r"[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?)(?![\d.]+\b)[^\s\"',;&(){}\[\]]{6,}"
)
IN_URL = re.compile(r"(://[^/\s:@]+:)[^/\s@]+(?=@)")


def tail(log: str, environ: Mapping[str, str], most: int = MOST_BYTES) -> str:
    """The last lines of a log, at most `most` bytes of UTF-8 together, redacted.

    :param environ: the process's variables: the values of those with a telling name are taken out wherever they are.
    """
    lines = redacted(log[-MOST_READ:], environ).splitlines()[-MOST_LINES:]
    text = "\n".join("".join(c for c in line if c.isprintable() or c == "\t") for line in lines)
    encoded = text.encode(errors="replace")
    if len(encoded) <= most:
        return encoded.decode()
    return encoded[-most:].decode(errors="ignore")


def redacted(text: str, environ: Mapping[str, str]) -> str:
    """The text without what looks like a secret."""
    known = [value for name, value in environ.items() if SECRET.search(name.upper()) and len(value) >= SHORTEST]
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, MASK)
    text = TOKENS.sub(MASK, text)
    text = NAMED.sub(lambda found: found.group(1) + MASK, text)
    return IN_URL.sub(lambda found: found.group(1) + MASK, text)
