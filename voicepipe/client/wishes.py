"""What a caller asks of its session, as far as the agent's own settings leave room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Everything left out stays as the agent has it."""

    text_only: bool = False
    """True: the answer is written, not spoken."""

    transcribe: bool = True
    """Whether the server tells what it understood."""

    language: str | None = None
    """What the caller speaks, BCP-47."""

    instructions: str | None = None
    voice: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """The `session` of a `session.update`."""
        transcription = {"language": self.language} if self.language else {}
        audio: dict[str, Any] = {"input": {"transcription": transcription if self.transcribe else None}}
        if self.voice is not None:
            audio["output"] = {"voice": self.voice}
        session: dict[str, Any] = {"type": "realtime", "audio": audio}
        if self.text_only:
            session["output_modalities"] = ["text"]
        if self.instructions is not None:
            session["instructions"] = self.instructions
        return session
