"""Name the setting that would have made a turn faster. The core has the causes of delays, but no settings."""

from __future__ import annotations

from typing import Final

_SETTINGS: Final = {
    "llm": "agents.NAME.llm",
    "model": "agents.NAME.model",
    "stt": "agents.NAME.stt",
    "tts": "agents.NAME.tts",
    "instructions": "agents.NAME.instructions",
    "agent_silence": "agents.NAME.silence_ms",
    "filler": "agents.NAME.filler",
    "greeting": "agents.NAME.greeting",
    "client_silence": "turn_detection.silence_duration_ms",
    "client_eagerness": "turn_detection.eagerness",
    "client_commit": "turn_detection.type",
    "client_playback": "the client's own buffer",
}
"""`Breach.depends_on` -> the setting; `agents` is the operator's, `turn_detection` the client's."""

_DEPENDS_ON: Final = {setting: depends_on for depends_on, setting in _SETTINGS.items()}


def setting_for(depends_on: str, agent: str) -> str:
    """Return the setting for the cause of a delay, of this agent; an unknown cause is returned unchanged."""
    return _SETTINGS.get(depends_on, depends_on).replace(".NAME.", f".{agent}.")


def depends_on_for(setting: str) -> str:
    """Return what a setting without the agent's name changes, for records that older versions wrote with it."""
    return _DEPENDS_ON.get(setting, setting)
