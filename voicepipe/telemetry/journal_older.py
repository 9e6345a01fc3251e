"""Bring the values of journals that older versions wrote to their present shape."""

from __future__ import annotations

from typing import Any

from voicepipe.turn.endpointing.built_in import ADAPTIVE, SILENCE

Plain = dict[str, Any]


def renewed_settings(found: Plain) -> Plain:
    """Return `TurnSettings` as this version writes them: `adaptive` was true or false before strategies had names."""
    adaptive = found.get("adaptive")
    if adaptive is None:
        return found
    rest = {name: value for name, value in found.items() if name != "adaptive"}
    return {**rest, "end_of_turn": ADAPTIVE if adaptive else SILENCE}


def renewed_fact(found: Plain) -> Plain:
    """Return an event as this version writes it."""
    settings = found.get("settings")
    return {**found, "settings": renewed_settings(settings)} if isinstance(settings, dict) else found
