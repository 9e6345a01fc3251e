"""The tokens of speech-to-speech models, and their prices. Plain data: the profiles of vendors have it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechUsage:
    """The tokens of one answer, as the provider counts them. Audio and text have different prices."""

    text_input: int = 0
    audio_input: int = 0
    cached_text: int = 0
    """The part of `text_input` that was read from the provider's cache."""

    cached_audio: int = 0
    """Likewise, of `audio_input`."""

    text_output: int = 0
    audio_output: int = 0

    @property
    def input_tokens(self) -> int:
        """Return all tokens of the input."""
        return self.text_input + self.audio_input

    @property
    def output_tokens(self) -> int:
        """Return all tokens of the output."""
        return self.text_output + self.audio_output

    @property
    def cached_tokens(self) -> int:
        """Return all tokens that were read from the cache."""
        return self.cached_text + self.cached_audio


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechPrice:
    """The price of a speech-to-speech model for a million tokens, in USD."""

    text_input_usd: float
    audio_input_usd: float
    text_output_usd: float
    audio_output_usd: float
    cached_text_usd: float | None = None
    """Of the input, the price of text read from the provider's cache; None: as the rest of it."""

    cached_audio_usd: float | None = None
    """Likewise, of audio."""

    def cost_usd(self, usage: SpeechUsage) -> float:
        """Return the cost of an answer."""
        cached_text_usd = self.text_input_usd if self.cached_text_usd is None else self.cached_text_usd
        cached_audio_usd = self.audio_input_usd if self.cached_audio_usd is None else self.cached_audio_usd
        usd = (usage.text_input - usage.cached_text) * self.text_input_usd + usage.cached_text * cached_text_usd
        usd += (usage.audio_input - usage.cached_audio) * self.audio_input_usd + usage.cached_audio * cached_audio_usd
        usd += usage.text_output * self.text_output_usd + usage.audio_output * self.audio_output_usd
        return usd / 1_000_000
