"""Inworld's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import (
    DEFAULT_VOICE,
    MERGED_INTO_REQUEST,
    Api,
    KnownProvider,
    Option,
    SpeechFacts,
    SpeechModelFacts,
    Vendor,
)

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="inworld",
            title="Inworld's STT and TTS",
            stt="voicepipe.providers.inworld.stt:open_transcriber",
            tts="voicepipe.providers.inworld.tts:open_synthesizer",
        ),
        Api(
            kind="inworld_realtime",
            title="Inworld's Realtime API",
            speech="voicepipe.providers.inworld.realtime:open_speech_model",
        ),
    ),
    providers=(
        KnownProvider(name="inworld", kind="inworld", base_url="wss://api.inworld.ai", speech_only=True),
        KnownProvider(name="inworld-realtime", kind="inworld_realtime", base_url="wss://api.inworld.ai"),
    ),
    key_env="INWORLD_API_KEY",
    domain="inworld.ai",
    speech=(
        SpeechFacts(
            spec="inworld/inworld-stt-1",
            stage="stt",
            kind="inworld",
            streams="an utterance in, texts out",
            cancel="`endTurn`",
            formats="PCM16 16 kHz",
            evidence="documented",
            usd=0.35 / 60,
            price_source="a reseller's list, 2026",
        ),
        SpeechFacts(
            spec="inworld/inworld-tts-2",
            stage="tts",
            kind="inworld",
            streams="clauses in, sound out",
            word_times="yes",
            cancel="the context is closed",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=35.0,
            priced="inworld-tts-2*",
            price_source="inworld.ai/pricing, on demand, May 2026",
        ),
    ),
    speech_models=(
        SpeechModelFacts(
            spec="inworld-realtime/openai/gpt-4o-mini",
            models="*",
            kind="inworld_realtime",
            input_format="PCM16 24 kHz",
            interrupted="`conversation.item.truncate`",
        ),
    ),
    options=(
        Option("stt_extra", "Inworld", "a JSON object that is merged into `transcribeConfig`"),
        Option("tts_voice", "Inworld", DEFAULT_VOICE),
        Option("tts_extra", "Inworld", MERGED_INTO_REQUEST),
    ),
)
