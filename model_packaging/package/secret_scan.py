"""Refuses a package that holds a token: whoever can read an artifact could use it, and artifacts are copied around.

Every byte is looked at, weights too, while they are digested: a notebook's output, a configuration, a checkpoint's
metadata. Patterns are of whole tokens, so that no variable called `hf_config` is taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from handler.errors import ClientError

# Hub tokens (user and organisation), AWS access key ids, private keys.
TOKENS = re.compile(
    rb"\b(?:hf_|api_org_)[A-Za-z0-9]{30,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"
)
# How they begin, which bytes.find looks for many times faster than the pattern is searched (10 GB/s against 0.1).
BEGINNINGS = (b"hf_", b"api_org_", b"AKIA", b"ASIA", b"-----BEGIN ")
# A settings file's line that names a token and has one. `${HF_TOKEN}` and an empty value are none.
NAMED = re.compile(
    rb"(?im)^[\s\"'-]*(?:export\s+)?[\w.]*(?:hf_token|hub_token|aws_secret_access_key)[\"']?\s*[:=]\s*[\"']?"
    rb"(?![$<{\"'])[^\s\"'#]{6,}"
)
SETTINGS = (".yaml", ".yml", ".toml", ".json", ".properties", ".env", ".ini", ".cfg", ".sh")
LONGEST = 256
SECRET_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class SecretFound(ClientError):
    """A file that would go into a package holds something that must not."""

    code = "secret_found"

    def __init__(self, path: str, position: int, what: str) -> None:
        self.path, self.position = path, position
        super().__init__(
            f"{path} holds {what} (at byte {position:,}), and a package is copied and kept: take it out. A token "
            "belongs into the endpoint's environment (HF_TOKEN), not into its files."
        )


def known_secrets(environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """The values of this process's own secret variables: wherever they are found, they are no coincidence."""
    values = (environ.get(name, "").strip() for name in SECRET_VARIABLES)
    return tuple(value.encode() for value in values if len(value) >= 12)


def scanned(chunks: Iterable[bytes], path: str, known: tuple[bytes, ...] = ()) -> Iterator[bytes]:
    """The same chunks; what is cut between two of them is found as well.

    :raises SecretFound: with the position of the first one, never with the secret.
    """
    before, position = b"", 0
    settings = path.endswith(SETTINGS)
    for chunk in chunks:
        window = before + chunk
        if found := _first(window, known, settings):
            where, what = found
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
    if settings and (found := NAMED.search(window)):
        return found.start(), "a setting that is a token"
    return None
