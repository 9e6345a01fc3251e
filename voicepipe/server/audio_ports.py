"""Ports for STT and TTS over REST, which the wiring implements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from voicepipe.ports.synthesizer import Synthesizer
from voicepipe.ports.transcriber import Transcriber


class SpeechRoute(Struct, frozen=True, kw_only=True):
    """The TTS route of one name."""

    name: str
    """The requested name: an agent, or a spec."""

    agent: str | None
    """The agent whose voice it is; None for a spec."""

    specs: tuple[str, ...]
    """TTS specs, best first; each later spec is a fallback."""

    synthesizer: Synthesizer
    model_name: str
    """The voice's name at its provider."""

    voice: str | None = None
    """The agent's own speed."""

    language: str | None = None
    """The agent's own language, BCP-47."""


class TranscriptionRoute(Struct, frozen=True, kw_only=True):
    """The STT route of one name."""

    name: str
    agent: str | None
    specs: tuple[str, ...]
    """STT specs, best first; each later spec is a fallback."""

    transcriber: Transcriber
    model_name: str
    language: str | None = None
    """The agent's own language, BCP-47."""


class AudioModels(Protocol):
    """The STT and TTS that requests may name."""

    def speech(self, name: str) -> SpeechRoute | None:
        """Return the TTS route of that name; None: there is none."""
        ...

    def transcription(self, name: str) -> TranscriptionRoute | None:
        """Return the STT route of that name; None: there is none."""
        ...

    def transcriptions(self) -> Iterable[TranscriptionRoute]:
        """Return all STT routes."""
        ...

    def tts_usd(self, spec: str, n_chars: int) -> float | None:
        """Return the price of the text; None: unknown."""
        ...

    def stt_usd(self, spec: str, duration_s: float) -> float | None:
        """Return the price of the audio; None: unknown."""
        ...
