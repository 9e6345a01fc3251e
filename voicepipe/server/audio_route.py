"""Who speaks and who hears over REST: what the server needs of whoever wires them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from voicepipe.stages.synthesizer import Synthesizer
from voicepipe.stages.transcriber import Transcriber


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRoute:
    """Who speaks what is asked of one name."""

    name: str
    """What is asked for: an agent, or a spec."""

    agent: str | None
    """The agent whose voice it is; None for a spec."""

    specs: tuple[str, ...]
    """Who speaks, best first: whoever is not the first steps in."""

    synthesizer: Synthesizer
    model_name: str
    """Its name at its provider."""

    voice: str | None = None
    """The agent's own."""

    language: str | None = None
    """Likewise, BCP-47."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionRoute:
    """Who hears what is asked of one name."""

    name: str
    agent: str | None
    specs: tuple[str, ...]
    """Who hears, likewise."""

    transcriber: Transcriber
    model_name: str
    language: str | None = None
    """The agent's own, BCP-47."""


class AudioModels(Protocol):
    """Everything that can be asked for."""

    def speech(self, name: str) -> SpeechRoute | None:
        """The voice of that name; None: there is none."""
        ...

    def transcription(self, name: str) -> TranscriptionRoute | None:
        """The ear of that name; None: there is none."""
        ...

    def speech_usd(self, spec: str, n_chars: int) -> float | None:
        """What so much text costs there; None: no price is known."""
        ...

    def hearing_usd(self, spec: str, duration_s: float) -> float | None:
        """What so much sound costs there; None: no price is known."""
        ...
