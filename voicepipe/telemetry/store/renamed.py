"""Rename the fields of records that an older version stored."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_FIELDS: Final = {
    "heard_by": "latency_source",
    "caller_text": "user_text",
    "heard_text": "played_text",
    "connect_hidden_ms": "tts_connect_hidden_ms",
    "ear_connect_hidden_ms": "stt_connect_hidden_ms",
}
_COSTS: Final = {"losers_usd": "hedge_usd", "speech_usd": "tts_usd", "hearing_usd": "stt_usd"}
_MARKS: Final = {
    "asked": "llm_requested",
    "heard": "first_audible",
    "filler_heard": "filler_audible",
    **{f"held_{i}": f"stall_began_{i}" for i in range(1, 9)},
    **{f"released_{i}": f"stall_ended_{i}" for i in range(1, 9)},
}


def renamed(record: bytes) -> bytes:
    """Return a record's JSON with the field names of database version 3; unreadable JSON is returned unchanged."""
    try:
        plain = _with(msgspec.json.decode(record, type=dict[str, Any]), _FIELDS)
        if plain.get("latency_source") == "nobody":
            plain["latency_source"] = "none"
        for name, names in (
            ("marks", _MARKS),
            ("projected", _MARKS),
            ("cost", _COSTS),
            ("session_cost", _COSTS),
            ("speculation", {"kept": "used"}),
            ("session_speculation", {"kept": "used"}),
        ):
            if isinstance(plain.get(name), dict):
                plain[name] = _with(plain[name], names)
        for part in plain.get("contributions", ()):
            for name in ("from_mark", "to_mark"):
                part[name] = _MARKS.get(part[name], part[name])
    except (ValueError, TypeError, KeyError):
        return record
    return msgspec.json.encode(plain)


def _with(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}
