"""Free names and values of a client."""

from __future__ import annotations

from typing import Final

from voicepipe.protocol.json_fields import record, text, wrong_value

MAX_METADATA_PAIRS: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512
"""The published limits of `response.metadata`."""


def read_metadata(value: object, path: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs, in the client's order.

    Raises:
        ProtocolError: it is no object of texts, or larger than the published limits.
    """
    given = record(value, path)
    if len(given) > MAX_METADATA_PAIRS:
        raise wrong_value(path, f"at most {MAX_METADATA_PAIRS} pairs", given)
    for key in given:
        text(key, f"{path}.{key[:MAX_METADATA_KEY_CHARS]}", max_chars=MAX_METADATA_KEY_CHARS)
    return tuple(
        (key, text(words, f"{path}.{key}", max_chars=MAX_METADATA_VALUE_CHARS)) for key, words in given.items()
    )
