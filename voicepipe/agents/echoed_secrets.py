"""Keep the secrets of a request out of its answer: a server may echo them, and the LLM reads the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl, urlsplit

HIDDEN: Final = "[secret]"
"""What the LLM reads in place of a secret."""

MIN_CHARS: Final = 8
"""The shortest text that is hidden: a shorter one may be a word of the answer."""

_PUBLIC: Final = frozenset(("accept", "accept-language", "content-type", "user-agent"))
"""Headers without a secret."""


def secrets_of(url: str, headers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the secrets in an address and its headers, longest first: `hunter2hunter2` of `Bearer hunter2hunter2`."""
    values = [text.strip().rpartition(" ")[2] for name, text in headers if name.lower() not in _PUBLIC]
    values += [value for _, value in parse_qsl(urlsplit(url).query) if "{{" not in value]
    return tuple(sorted({value for value in values if len(value) >= MIN_CHARS}, key=len, reverse=True))


def without(secrets: Iterable[str], text: str) -> str:
    """Return the text with `HIDDEN` in place of each secret."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text
