"""Remove secrets from any text that is to be logged."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

_KEYS: Final = r"(?:ek_|sk-|sk_|vp_|whsec_|gsk_|xai-|hf_)"
"""Prefixes of API keys: voicepipe's (`ek_`, `vp_`, `whsec_`) and those of vendors."""

_SECRET_NAME: Final = r"(?:[\w-]{0,40}(?:api[-_]?key|secret|password|passwd|credential|token)|auth|sig(?:nature)?)"
"""Names whose values are secret, in headers, queries, JSON and Python. `tokens` and `max_output_tokens` are not
secret."""

_RULES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"(\bauthorization\b[\\\"']*\s*[:=]\s*[\\\"']*)[^\"'\r\n,;\\]+", rf"\1{HIDDEN}"),
        (r"\b(bearer|basic)(\s+)[\w+/=.~%-]+", rf"\1\2{HIDDEN}"),
        (rf"(?<![A-Za-z0-9])({_KEYS})[\w.~+/=-]+", rf"\1{HIDDEN}"),
        (r"\beyJ[\w-]+(?:\.[\w-]+)+", HIDDEN),  # a JWT: base64url of `{"`
        (r"(\w://)[^\s/@\"']+@", rf"\1{HIDDEN}@"),  # user:password@ of a URL
        (rf"(\b{_SECRET_NAME}\b[\\\"']*\s*[:=]\s*[bru]?[\\\"']*)[^\s\"'&,;\\)\]}}]+", rf"\1{HIDDEN}"),
    )
)
_NAME: Final = re.compile(rf"{_SECRET_NAME}|authorization|cookie", re.IGNORECASE)


def redact(text: str) -> str:
    """Return the text with everything that looks like a secret replaced by `***`.

    These are found: keys by their prefix, Bearer and Basic values, JWTs, passwords in URLs, and any value after a
    name such as `api_key=`. In doubt, harmless text is hidden too.
    """
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def names_secret(name: str) -> bool:
    """Return whether a field of this name is secret, independent of its value."""
    return _NAME.fullmatch(name) is not None
