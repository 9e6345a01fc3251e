"""Limits of a provider's output, beyond which the provider counts as broken."""

from __future__ import annotations

from dataclasses import dataclass

from voicepipe.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderLimits:
    """Limits of one answer, one turn's speech or one utterance of a provider. At a limit the provider counts as broken:
    the router goes on with the next provider, or the turn fails with the reason."""

    max_answer_chars: int = 1_000_000
    """LLM: the longest answer, in characters of text."""

    max_argument_chars: int = 500_000
    """LLM: the longest arguments of all function calls of an answer together, in characters."""

    max_calls: int = 64
    """LLM: the most function calls of one answer."""

    max_quiet_s: int = 120
    """LLM: how long an answer may consist of keep-alives, empty pieces and reasoning only. In a session,
    `deadlines.first_output_ms` and `deadlines.progress_ms` end a reply sooner."""

    max_answer_s: int = 1_800
    """LLM: the longest time from the request to the end of the answer."""

    max_speech_s: int = 1_800
    """TTS: the longest speech of one turn or request, in seconds of audio."""

    max_speech_ms_per_char: int = 2_000
    """TTS: the longest speech for each character of text, on top of 10 s. Speech at a quarter of its usual speed takes
    about 300 ms."""

    max_silence_s: int = 10
    """TTS: the longest silence inside speech, in seconds of audio."""

    min_speech_ms: int = 1_000
    """TTS: the least audio in 15 s during which audio arrives. Less is too little to be speech."""

    max_transcript_chars_per_s: int = 100
    """STT: the longest transcript for each second of an utterance, on top of 4000 characters. Fast speech has about 25
    per second. Longer interim transcripts are dropped."""

    max_texts_per_s: int = 100
    """STT: the most interim transcripts, and the most final ones, for each second of an utterance, on top of 1000.
    Interim ones beyond the limit are dropped."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected 1 or more, got {getattr(self, name)}")
