"""Bring the values of journals that older versions wrote to their present shape."""

from __future__ import annotations

from typing import Any, Final

from voicepipe.telemetry.advice import depends_on_for
from voicepipe.turn.endpointing.strategies import ADAPTIVE, SILENCE

Plain = dict[str, Any]


def renewed_settings(found: Plain) -> Plain:
    """Return `TurnSettings` as this version writes them.

    `adaptive` was true or false before strategies had names, and `silence_setting` was the name of a setting.
    """
    renewed = dict(found)
    if (adaptive := renewed.pop("adaptive", None)) is not None:
        renewed["end_of_turn"] = ADAPTIVE if adaptive else SILENCE
    if (setting := renewed.pop("silence_setting", None)) is not None:
        renewed["silence_set_by"] = depends_on_for(setting)
    return renewed


def renewed_command(found: Plain) -> Plain:
    """Return a command as this version writes it: a record's breach had the name of a setting."""
    record = found.get("record")
    if not isinstance(record, dict):
        return found
    breach = record.get("breach")
    if not isinstance(breach, dict) or "setting" not in breach:
        return found
    rest = {name: value for name, value in breach.items() if name != "setting"}
    renewed = {**rest, "depends_on": depends_on_for(breach["setting"])}
    return {**found, "record": {**record, "breach": renewed}}


_OF_THE_VOICE: Final = ("final_pitch_st", "final_voiced_ms")

_RENAMED: Final = {"ReplyOwed": "ReplyRestored"}
"""Old name of an event -> its present name."""


def renewed_event(found: Plain) -> Plain:
    """Return an event as this version writes it: under its present name, and a pause without measurements of the voice,
    which nothing reads now."""
    renewed = {name: value for name, value in found.items() if name not in _OF_THE_VOICE}
    if (kind := _RENAMED.get(str(found.get("is")))) is not None:
        renewed["is"] = kind
    settings = found.get("settings")
    return {**renewed, "settings": renewed_settings(settings)} if isinstance(settings, dict) else renewed
