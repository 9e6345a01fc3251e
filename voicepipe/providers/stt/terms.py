"""The words to expect, for vendors that take a list of terms and no prose."""

from __future__ import annotations

TERM_WORDS = 6
"""A bound of our own on what a prompt becomes; a prompt of prose has no terms in it."""


def terms(prompt: str | None, most: int) -> list[str]:
    """At most so many of the prompt's terms, which stand between commas or on lines of their own."""
    all_of_them = [term.strip() for line in (prompt or "").splitlines() for term in line.split(",")]
    return [term for term in all_of_them if 0 < len(term.split()) <= TERM_WORDS][:most]
