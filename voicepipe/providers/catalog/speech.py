"""What is known of speech vendors, for people: one row for each ear and voice, shown in README's table.

What code needs of them stands in their adapters; tests hold the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from voicepipe.providers.catalog.facts import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechFacts:
    """One ear or voice of one vendor."""

    spec: str
    """How it is named: a vendor and one of its models. `NAME` is whatever its user calls it."""

    stage: Literal["stt", "tts"]
    kind: str
    """Which adapter speaks to it."""

    key_env: str = ""
    """The environment variable that holds its key; empty if it needs none."""

    streams: str
    """What goes in and out while it is said."""

    turn_events: str = "-"
    """What it tells of turns."""

    word_times: str = "-"
    """Whether it tells when each word was said, and what that serves."""

    cancel: str
    """How words that are due are asked for, or speech that is not wanted any more is stopped."""

    formats: str
    """The sound that goes in or out."""

    evidence: Evidence
    """Where its wire is known from; what no source confirms is marked in the adapter."""


EARS: Final = (
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
    ),
)
