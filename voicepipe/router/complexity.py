"""Guess from its words whether a question is easy, in microseconds, for cascades.

Replaceable: an installed package may add a heuristic under the entry point group `ENTRY_POINT_GROUP`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from voicepipe.errors import ConfigError
from voicepipe.router.policies import RoutingQuery

ENTRY_POINT_GROUP: Final = "voicepipe.complexity"
"""Name, and `module:function` that takes an `RoutingQuery` and returns whether a small model suffices."""

WORDS: Final = "words"

MOST_WORDS: Final = 18
"""Longer questions usually have parts. Two lines of speech."""

HARD: Final = re.compile(
    r"\b(why|explain|compare|difference|calculate|prove|derive|analy[sz]e|summari[sz]e|translate|plan|step by step|"
    r"code|program|warum|erkläre|vergleiche|berechne|pourquoi|explique|compare[rz]?|por qué|explica|calcula)\b",
    re.IGNORECASE,
)
"""Words that ask for step-by-step reasoning."""

NUMBERS: Final = re.compile(r"\d+([.,]\d+)?\s*[-+*/x^%]|\bpercent\b")


def looks_easy(query: RoutingQuery) -> bool:
    """Return whether this is a short question without functions to choose from, calculations to do or reasons to
    give."""
    if query.n_functions or len(query.text.split()) > MOST_WORDS:
        return False
    return not HARD.search(query.text) and not NUMBERS.search(query.text)


def judge(name: str, *, key: str) -> Callable[[RoutingQuery], bool]:
    """Return the heuristic of that name.

    Raises:
        ConfigError: naming `key`, when none is built in or installed under that name.
    """
    if name == WORDS:
        return looks_easy
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        loaded: Callable[[RoutingQuery], bool] = entry.load()
        return loaded
    raise ConfigError(f"{key}: expected {WORDS!r} or the name of an installed one, got {name!r}")
