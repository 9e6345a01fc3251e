"""The tokens of speech-to-speech models, and their prices. Plain data: the profiles of vendors have it."""

from __future__ import annotations

from msgspec import Struct

from voicepipe.turn.cost import Price


class SpeechUsage(Struct, frozen=True, kw_only=True):
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


class SpeechPrice(Struct, frozen=True, kw_only=True):
    """The price of a speech-to-speech model: one for its tokens of text, one for those of audio."""

    text: Price
    audio: Price

    def cost_usd(self, usage: SpeechUsage) -> float:
        """Return the cost of an answer in USD."""
        text_usd = self.text.cost_usd(usage.text_input, usage.text_output, usage.cached_text)
        return text_usd + self.audio.cost_usd(usage.audio_input, usage.audio_output, usage.cached_audio)
