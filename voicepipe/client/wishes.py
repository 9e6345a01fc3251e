"""What a caller asks of its session, as far as the agent's own settings leave room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from voicepipe.protocol.extensions import OPT_IN, Extensions

EXTENSIONS: Final = Extensions(binary_audio=True, playback_reports=True, resume=True, ducking=True)
"""A call that takes less of the line, tells what was heard, and outlives a line that breaks."""


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

    extensions: Extensions | None = EXTENSIONS
    """What the session is to have beyond the published events; None: nothing, for a server that takes no such wish."""

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
        if self.extensions is not None:
            session[OPT_IN] = {"voicepipe": self.extensions.to_wire()}
        return session
