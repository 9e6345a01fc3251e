"""`[agents.NAME.languages.TAG]`: how an agent speaks when its user speaks that language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageEntry:
    """An `[agents.NAME.languages.TAG]`, such as `[agents.desk.languages.de]`. An agent without a `language` uses it
    once the STT detects that language, or another form of it (`de-AT`).
    """

    voice: str | None = None
    """The voice for this language at the TTS provider, unless the client sets one. Unset: the agent's `voice`."""

    instructions: str = ""
    """What the LLM reads behind the agent's instructions, such as "Answer in German."; `{{name}}` as there."""

    filler: str = ""
    """The filler in this language, such as "Einen Moment." Empty: the agent's `filler`."""
