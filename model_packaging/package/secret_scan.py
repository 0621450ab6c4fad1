"""Rejects a package that contains a token: everyone who can read the package could use it.

Every byte is scanned while it is digested, also in weights: a token may be in a notebook's output, a configuration or a
checkpoint's metadata. Patterns match whole tokens, so that a variable `hf_config` does not match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from handler.errors import ClientError

# Hub tokens (user and organisation), AWS access key ids, private keys.
TOKENS = re.compile(
    rb"\b(?:hf_|api_org_)[A-Za-z0-9]{30,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"
)
# Their prefixes. bytes.find is much faster than a pattern search (10 GB/s against 0.1).
BEGINNINGS = (b"hf_", b"api_org_", b"AKIA", b"ASIA", b"-----BEGIN ")
# A line of a settings file with a token's name and value. `${HF_TOKEN}` and an empty value do not match.
NAMED = re.compile(
    rb"(?im)^[ \t\"'-]*(?:export\s+)?[\w.]*(?:hf_token|hub_token|aws_secret_access_key)[\"']?\s*[:=]\s*[\"']?"
    rb"(?![$<{\"'])[^\s\"'#]{6,}"
)
SETTINGS = (".yaml", ".yml", ".toml", ".json", ".properties", ".env", ".ini", ".cfg", ".sh")
LONGEST = 256
SECRET_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class SecretFound(ClientError):
    """A file of a package contains a secret."""

    code = "secret_found"

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(
            f"{path} holds {what} (at byte {position:,}), and packages are copied and stored: remove it. A token "
            "belongs into the endpoint's environment (HF_TOKEN), not into its files."
        )


def known_secrets(environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """Returns the values of this process's secret variables."""
    values = (environ.get(name, "").strip() for name in SECRET_VARIABLES)
    return tuple(value.encode() for value in values if len(value) >= 12)


def scanned(chunks: Iterable[bytes], path: str, known: tuple[bytes, ...] = ()) -> Iterator[bytes]:
    """Yields the chunks unchanged, and searches them. A secret across two chunks is found as well.

    :raises SecretFound: with the position of the first secret, without the secret itself.
    """
    before, position = b"", 0
    settings = path.endswith(SETTINGS)
    for chunk in chunks:
        window = before + chunk
        if place := _first(window, known, settings):
            where, what = place
            raise SecretFound(path, position - len(before) + where, what)
        before, position = window[-LONGEST:], position + len(chunk)
        yield chunk


def _first(window: bytes, known: tuple[bytes, ...], settings: bool) -> tuple[int, str] | None:
    for secret in known:
        if (where := window.find(secret)) >= 0:
            return where, "the value of a secret variable of this shell"
    for start in BEGINNINGS:
        where = window.find(start)
        while where >= 0:
            if TOKENS.match(window, where):
                return where, "a token or private key"
            where = window.find(start, where + 1)
    if settings and (match := NAMED.search(window)):
        return match.start(), "a setting that is a token"
    return None
