"""What of settings is a secret, by its name or its form, and how it is masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from handler.errors.base import one_line

MASK: Final = "***"
# This many first characters of a secret are enough to recognise it in a text.
RECOGNISABLE: Final = 8
# Shorter values ("1", "yes") are no secrets, and would mask parts of words.
SHORTEST: Final = 4
# MAX_NUM_BATCHED_TOKENS and TOKEN_GENERATION_BUCKETS are not secrets. OTEL_EXPORTER_OTLP_HEADERS holds API keys, and
# vLLM 0.32's watermark_config the key of the watermark.
SECRET_NAMES: Final = re.compile(
    r"(?:^|_)TOKEN$|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|SIGNATURE"
    r"|AUTHORIZATION|(?:^|_)(?:AUTH|PW|WATERMARK_CONFIG)$|OTLP(?:_\w+)?_HEADERS$"
)
# The tokens of a tokenizer: pad_token, classifier_from_token, image_start_token.
TEXT_TOKENS: Final = re.compile(
    r"(?:^|_)(?:PAD|BOS|EOS|UNK|SEP|CLS|MASK|IMAGE|VIDEO|AUDIO|START|END|STOP|FROM|THINK|SPECIAL|BOI|EOI|TOOL|NEXT|FIRST"
    r"|LAST|PREFIX|SUFFIX|MIDDLE|PLACEHOLDER|DELIMITER|SEPARATOR|CONTEXT|QUERY|DOCUMENT|SUMMARY|ACTION)_TOKEN$"
)
# As in a package index or a proxy: https://user:password@host. A password may hold an @, and a path has one slash.
ADDRESS: Final = re.compile(r"(:/{1,2})([^/\s]+)(?=@)")
# As in an address that was signed: https://bucket/file?X-Amz-Signature=...
PARAMETER: Final = re.compile(
    r"(?i)([?&][\w.-]{0,60}(?:token(?==)|signature|secret|password|credential|api[_-]?key|access[_-]?key)[\w.-]{0,60}=)[^&#\s\"']+"
)
# As in a header: Authorization: Bearer ...
BEARER: Final = re.compile(r"(?i)\b(bearer\s+)(?=[^\s\"',]*[0-9])[\w.~+/=-]{8,}")
# A member of an object in a value that is the text of one, or the beginning of one: {"MY_TOKEN": "..."}
MEMBER: Final = re.compile(r'("((?:[^"\\]|\\.){0,100})"\s*:\s*)("(?:[^"\\]|\\.)+"?|\[[^\]]+\]?|-?\d{8,})')
# A path, an address or a word. What else is given in place of one may be settings, with a token in them.
LOCATION: Final = re.compile(r"(?:\.{0,2}/|[a-z\d]+://).*|[^\s=:]+")


def location_shown(location: str) -> str:
    """A location as messages quote it; not a text that cannot be one."""
    return location[:200] if LOCATION.fullmatch(location) else "what it names (not shown: it may be settings)"


def is_secret(name: str, value: str) -> bool:
    return has_secret_name(name) or without_credentials(value) != value


def has_secret_name(name: str) -> bool:
    last = name.rpartition(".")[2].replace("-", "_").upper()
    return bool(SECRET_NAMES.search(last)) and not TEXT_TOKENS.search(last)


def without_credentials(text: str) -> str:
    """The text with what is a secret by its form masked: credentials in an address, and JSON members with its names."""
    for form in (ADDRESS, PARAMETER, BEARER):
        text = form.sub(rf"\1{MASK}", text)
    return MEMBER.sub(_masked_member, text)


def _masked_member(match: re.Match[str]) -> str:
    if has_secret_name(match[2]):
        return f'{match[1]}"{MASK}"'
    return f"{match[1]}{MEMBER.sub(_masked_member, match[3])}" if match[3].startswith("[") else match[0]


def secrets_in(value: object, name: str = "") -> Iterator[str]:
    """Every secret in a value, at any depth, so that it is also recognised where a message quotes a part of it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from secrets_in(item, name if has_secret_name(name) else str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from secrets_in(item, name)
    elif isinstance(value, int) and has_secret_name(name):
        yield from filter(_is_recognisable, [str(value)])
    elif isinstance(value, str):
        if has_secret_name(name) and _is_recognisable(value.strip()):
            yield value.strip()
        yield from (match[0] for match in ADDRESS.finditer(value) if ":" in match[2])
        members = (match[3].strip('"') for match in MEMBER.finditer(value) if has_secret_name(match[2]))
        yield from filter(_is_recognisable, members)


def _is_recognisable(value: str) -> bool:
    """Whether it is masked wherever it occurs. A word, or the place of a secret, occurs in other texts, too."""
    place = value.startswith(("/", "./", "~", "arn:")) or "://" in value
    return len(value) >= RECOGNISABLE and not place


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret masked, also one that the message cut off, or has on one line."""
    text = without_credentials(text)
    for secret in sorted(map(one_line, secrets), key=len, reverse=True):
        start, line = secret[:RECOGNISABLE], one_line(text)
        position = line.find(start)
        while position >= 0:
            end = position + len(start)
            while end < len(line) and line[position : end + 1] == secret[: end + 1 - position]:
                end += 1
            text = f"{text[:position]}{MASK}{text[end:]}"
            line = one_line(text)
            position = line.find(start, position + len(MASK))
    return text
