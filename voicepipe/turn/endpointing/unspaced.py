"""Scripts that put no spaces between words."""

from __future__ import annotations

from typing import Final

N_UNSPACED_PER_WORD: Final = 2
"""Letters of a word, roughly: the commonest length of Chinese words. Japanese and Thai words are a little longer."""

_RANGES: Final = (
    ("\u0e00", "\u0eff"),  # Thai and Lao
    ("\u1000", "\u109f"),  # Myanmar
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3040", "\u30ff"),  # Hiragana and Katakana
    ("\u3400", "\u9fff"),  # Han
    ("\uf900", "\ufaff"),  # Han, compatibility
)
"""Source: Unicode 16, Blocks.txt."""


def is_unspaced(char: str) -> bool:
    """Return whether a letter belongs to such a script."""
    return char >= "\u0e00" and char.isalpha() and any(first <= char <= last for first, last in _RANGES)
