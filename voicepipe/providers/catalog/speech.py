"""Facts about STT and TTS vendors and their prices: one row each, shown in the documentation's table.

Their protocols are in their adapters; tests check that rows and adapters agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

from voicepipe.providers.catalog.facts import Evidence
from voicepipe.registry import Spec

HOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "assemblyai": "assemblyai.com",
        "cartesia": "cartesia.ai",
        "deepgram": "deepgram.com",
        "elevenlabs": "elevenlabs.io",
        "inworld": "inworld.ai",
        "openai": "openai.com",
        "openai-realtime": "openai.com",
        "rime": "rime.ai",
    }
)
"""The vendors' addresses: prices do not apply at other addresses."""

CARTESIA_CREDIT_USD: Final = 5 / 100_000
"""Price in the smallest paid plan; larger ones give more for a dollar. Source: cartesia.ai/pricing, June 2026."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechFacts:
    """One STT or TTS of one vendor."""

    spec: str
    """The spec: a vendor and one of its models. `NAME` is any name that the user chooses."""

    stage: Literal["stt", "tts"]
    kind: str
    """The adapter's kind."""

    key_env: str = ""
    """The environment variable that holds its key; empty if it needs none."""

    streams: str
    """The streaming of input and output."""

    turn_events: str = "-"
    """The turn events that it sends."""

    word_times: str = "-"
    """Whether it sends word times, and their use."""

    cancel: str
    """How pending words are requested, or how unwanted speech is stopped."""

    formats: str
    """The format of audio input or output."""

    evidence: Evidence
    """Source of its protocol; facts without a source are marked in the adapter."""

    usd: float | None = None
    """List price of a minute of STT audio, or of a million TTS characters; None: not known. All are unverified: prices
    change, and none has been checked against a bill."""

    priced: str = ""
    """A shell pattern of the models with this price; empty: the model of `spec`."""

    price_source: str = ""
    """Source and date of `usd`."""

    def prices(self, spec: Spec) -> bool:
        """Whether `usd` is the price of `spec`."""
        own = Spec.parse(self.spec)
        return spec.provider == own.provider and fnmatchcase(spec.model, self.priced or own.model)


def published_usd(stage: Literal["stt", "tts"], spec: Spec, base_url: str) -> float | None:
    """Return the price of STT per minute, or of TTS per million characters, as in `SpeechFacts.usd`.

    None when it is not known, or when `base_url` is not the vendor's own.
    """
    host, home = urlsplit(base_url).hostname or "", HOMES.get(spec.provider, "")
    if not home or not f".{host}".endswith(f".{home}"):
        return None
    rows = TRANSCRIBERS if stage == "stt" else VOICES
    return next((its.usd for its in rows if its.prices(spec)), None)


TRANSCRIBERS: Final = (
    SpeechFacts(
        spec="deepgram/nova-3",
        stage="stt",
        kind="deepgram",
        key_env="DEEPGRAM_API_KEY",
        streams="the call in, texts out",
        turn_events="end of speech",
        word_times="yes, to place words",
        cancel="`Finalize`",
        formats="PCM16 16 kHz",
        evidence="documented",
        usd=0.0048,
        priced="nova-3*",
        price_source="deepgram.com/pricing, pay as you go, streaming, August 2026",
    ),
    SpeechFacts(
        spec="deepgram/flux-general-en",
        stage="stt",
        kind="deepgram",
        key_env="DEEPGRAM_API_KEY",
        streams="the call in, texts out",
        turn_events="start, end expected, taken back, end",
        word_times="yes, to place words",
        cancel="its next text, else `ForceEndTurn`",
        formats="PCM16 16 kHz",
        evidence="documented",
        usd=0.0065,
        price_source="deepgram.com/pricing, pay as you go, 2026",
    ),
    SpeechFacts(
        spec="assemblyai/universal-streaming",
        stage="stt",
        kind="assemblyai",
        key_env="ASSEMBLYAI_API_KEY",
        streams="the call in, texts out",
        turn_events="start, utterance complete, end",
        word_times="yes, to place words",
        cancel="`ForceEndpoint`",
        formats="PCM16 16 kHz, 50 ms at least",
        evidence="documented",
        usd=0.15 / 60,
        priced="universal-streaming*",
        price_source="assemblyai.com/pricing, by the hour of an open connection, 2025",
    ),
    SpeechFacts(
        spec="cartesia/ink-2",
        stage="stt",
        kind="cartesia",
        key_env="CARTESIA_API_KEY",
        streams="the call in, texts out",
        turn_events="start, end expected, taken back, end",
        cancel="none: what is known counts after a while",
        formats="PCM16 16 kHz",
        evidence="documented",
        usd=180 * CARTESIA_CREDIT_USD,
        price_source="docs.cartesia.ai/pricing, 3 credits a second, 2026",
    ),
    SpeechFacts(
        spec="cartesia/ink-whisper",
        stage="stt",
        kind="cartesia",
        key_env="CARTESIA_API_KEY",
        streams="the call in, texts out",
        cancel="`finalize`",
        formats="PCM16 16 kHz",
        evidence="documented",
        usd=60 * CARTESIA_CREDIT_USD,
        price_source="docs.cartesia.ai/pricing, a credit a second, 2026",
    ),
    SpeechFacts(
        spec="elevenlabs/scribe_v2_realtime",
        stage="stt",
        kind="elevenlabs",
        key_env="ELEVENLABS_API_KEY",
        streams="an utterance in, texts out",
        cancel="`commit`",
        formats="PCM16 16 kHz",
        evidence="documented",
        usd=0.39 / 60,
        price_source="elevenlabs.io/pricing/api, June 2026",
    ),
    SpeechFacts(
        spec="openai-realtime/gpt-live-transcribe",
        stage="stt",
        kind="openai_realtime",
        key_env="OPENAI_API_KEY",
        streams="an utterance in, texts out",
        cancel="`input_audio_buffer.commit`",
        formats="PCM16 24 kHz",
        evidence="documented",
    ),
    SpeechFacts(
        spec="NAME/Systran/faster-whisper-small",
        stage="stt",
        kind="openai_realtime",
        streams="an utterance in, texts out",
        cancel="`input_audio_buffer.commit`",
        formats="PCM16 24 kHz, Speaches",
        evidence="from_code",
    ),
    SpeechFacts(
        spec="NAME/mistralai/Voxtral-Mini-4B-Realtime-2602",
        stage="stt",
        kind="openai_realtime",
        streams="an utterance in, texts out",
        cancel="a commit that is `final`",
        formats="PCM16 16 kHz, vLLM",
        evidence="documented",
    ),
    SpeechFacts(
        spec="inworld/inworld-stt-1",
        stage="stt",
        kind="inworld",
        key_env="INWORLD_API_KEY",
        streams="an utterance in, texts out",
        cancel="`endTurn`",
        formats="PCM16 16 kHz",
        evidence="documented",
        usd=0.35 / 60,
        price_source="a reseller's list, 2026",
    ),
    SpeechFacts(
        spec="NAME/default",
        stage="stt",
        kind="wyoming",
        streams="an utterance in, its text out",
        cancel="a connection at each pause",
        formats="PCM16 16 kHz",
        evidence="documented",
    ),
    SpeechFacts(
        spec="openai/whisper-1",
        stage="stt",
        kind="openai",
        key_env="OPENAI_API_KEY",
        streams="an utterance in, its text out",
        cancel="a request at each pause",
        formats="WAV 16 kHz",
        evidence="documented",
        usd=0.006,
        price_source="OpenAI docs, whisper-1, 2026",
    ),
)

VOICES: Final = (
    SpeechFacts(
        spec="cartesia/sonic-3",
        stage="tts",
        kind="cartesia",
        key_env="CARTESIA_API_KEY",
        streams="clauses in, sound out",
        word_times="yes",
        cancel="the context is cancelled",
        formats="PCM16 24 kHz",
        evidence="documented",
        usd=1_000_000 * CARTESIA_CREDIT_USD,
        priced="sonic*",
        price_source="docs.cartesia.ai/pricing, a credit a character, 2026",
    ),
    SpeechFacts(
        spec="elevenlabs/eleven_flash_v2_5",
        stage="tts",
        kind="elevenlabs",
        key_env="ELEVENLABS_API_KEY",
        streams="clauses in, sound out",
        word_times="yes, from those of characters",
        cancel="the context is closed",
        formats="PCM16 24 kHz",
        evidence="documented",
        usd=50.0,
        priced="eleven_flash*",
        price_source="elevenlabs.io/pricing/api, June 2026",
    ),
    SpeechFacts(
        spec="deepgram/aura-2-thalia-en",
        stage="tts",
        kind="deepgram",
        key_env="DEEPGRAM_API_KEY",
        streams="clauses in, sound out",
        cancel="the socket is closed",
        formats="PCM16 24 kHz",
        evidence="documented",
        usd=30.0,
        priced="aura-2-*",
        price_source="deepgram.com/pricing, pay as you go, 2025",
    ),
    SpeechFacts(
        spec="inworld/inworld-tts-2",
        stage="tts",
        kind="inworld",
        key_env="INWORLD_API_KEY",
        streams="clauses in, sound out",
        word_times="yes",
        cancel="the context is closed",
        formats="PCM16 24 kHz",
        evidence="documented",
        usd=35.0,
        priced="inworld-tts-2*",
        price_source="inworld.ai/pricing, on demand, May 2026",
    ),
    SpeechFacts(
        spec="rime/arcana",
        stage="tts",
        kind="rime",
        key_env="RIME_API_KEY",
        streams="clauses in, sound out",
        word_times="yes",
        cancel="`clear`, and the socket is closed",
        formats="PCM16 24 kHz",
        evidence="documented",
        usd=30.0,
        priced="arcana*",
        price_source="rime.ai/pricing, by the minute of some 1000 characters, May 2026",
    ),
    SpeechFacts(
        spec="NAME/default",
        stage="tts",
        kind="wyoming",
        streams="a clause in, sound out",
        cancel="the connection is cut",
        formats="PCM16, any rate",
        evidence="documented",
    ),
    SpeechFacts(
        spec="openai/tts-1",
        stage="tts",
        kind="openai",
        key_env="OPENAI_API_KEY",
        streams="a clause in, sound out",
        cancel="the request is closed",
        formats="PCM16 24 kHz",
        evidence="documented",
        usd=15.0,
        price_source="OpenAI docs, tts-1, 2026",
    ),
)
