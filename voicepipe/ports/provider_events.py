"""Events that a provider's stream has beside its output. None of them is output: a stream of these alone is silent."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ModelConnected(Struct, frozen=True):
    """The LLM request has its connection, reused or new. Each of several providers sends it; providers without
    connections don't."""


class ModelJoined(Struct, frozen=True):
    """A router sent the LLM request to another model too."""

    provider: str
    """The model's spec."""

    role: Literal["hedge", "replacement", "continuation"]


class TranscriberConnected(Struct, frozen=True):
    """The connection to the STT is ready. Providers that keep a connection between utterances send it, once a
    connection."""

    took_ms: int
    """How long connecting took, in ms."""


class SynthesizerConnected(Struct, frozen=True):
    """The connection to the TTS is ready. Providers that keep connections between turns send it, once a turn."""

    hidden_ms: int
    """How much of connecting was over when the turn began, in ms."""


class ProviderChanged(Struct, frozen=True):
    """From here on another of several providers serves, not the one that the stage is named after."""

    provider: str
    """The provider's spec, `local/hibari`."""

    role: Literal["primary", "hedge", "replacement", "continuation"]
    """`primary`: it was the first choice of this turn. `hedge`: it was faster. `replacement`: the other failed before
    any output. `continuation`: in mid-utterance or mid-sentence.
    """

    why: str
    """The reason, for an operator: `cartesia/sonic: HTTP 503`."""

    n_chars: int = 0
    """TTS: how much of the text handed over it speaks in place of the provider before it."""

    waited_for: str = ""
    """The provider that was waited for before: of an STT, the one that it follows; of a TTS, one that was waited for
    longer than this one. Empty: there was none.
    """


class UnusedSpeech(Struct, frozen=True):
    """A TTS was given this much text and lost to a faster one: its provider charges for it, and the audio was not
    played.
    """

    provider: str
    n_chars: int


class CachedSpeech(Struct, frozen=True):
    """Text was played from the cache on disk, without a request to the TTS."""

    provider: str
    n_chars: int
