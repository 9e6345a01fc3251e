"""The session settings that a client requests, within what the agent's own settings allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from voicepipe.protocol.extensions import OPT_IN, Extensions

EXTENSIONS: Final = Extensions(binary_audio=True, playback_reports=True, resume=True, ducking=True)
"""A session that uses less bandwidth, reports playback, and continues after a lost connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Fields left out keep the agent's setting."""

    text_only: bool = False
    """True: the answer is text, without audio."""

    transcribe: bool = True
    """Whether the server sends the user's transcript."""

    language: str | None = None
    """The user's language, BCP-47."""

    instructions: str | None = None
    voice: str | None = None

    extensions: Extensions | None = EXTENSIONS
    """The requested extensions to the published events; None: none, for a server that rejects such a request."""

    def to_wire(self) -> dict[str, Any]:
        """Return the `session` of a `session.update`."""
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
