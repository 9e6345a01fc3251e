"""Extract the expected words from a prompt, for vendors that take a list of terms and no prose."""

from __future__ import annotations

TERM_WORDS = 6
"""A limit of this adapter on the words of a term; a prompt of prose has no terms in it."""


def terms(prompt: str | None, limit: int) -> list[str]:
    """Return at most this number of the prompt's terms, which are separated by commas or line ends."""
    all_of_them = [term.strip() for line in (prompt or "").splitlines() for term in line.split(",")]
    return [term for term in all_of_them if 0 < len(term.split()) <= TERM_WORDS][:limit]
