"""Together's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import ADDED_TO_ADDRESS, DEFAULT_VOICE, Api, KnownProvider, Option, SpeechFacts, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="together",
            title="Together's STT and TTS",
            stt="voicepipe.providers.together.stt:open_transcriber",
            tts="voicepipe.providers.together.tts:open_synthesizer",
        ),
    ),
    providers=(KnownProvider(name="together", kind="together", base_url="wss://api.together.ai/v1", speech_only=True),),
    key_env="TOGETHER_API_KEY",
    domain="together.ai",
    speech=(
        SpeechFacts(
            spec="together/openai/whisper-large-v3",
            stage="stt",
            kind="together",
            streams="an utterance in, texts out",
            cancel="`input_audio_buffer.commit`",
            formats="PCM16 16 kHz",
            evidence="documented",
        ),
        SpeechFacts(
            spec="together/hexgrad/Kokoro-82M",
            stage="tts",
            kind="together",
            streams="clauses in, sound out",
            word_times="yes",
            cancel="`clear`, and the socket is closed",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=4.0,
            price_source="Together's published guide for coding agents, TTS models, 2026",
        ),
        SpeechFacts(
            spec="together/canopylabs/orpheus-3b-0.1-ft",
            stage="tts",
            kind="together",
            streams="clauses in, sound out",
            word_times="yes",
            cancel="`clear`, and the socket is closed",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=15.0,
            price_source="Together's published guide for coding agents, TTS models, 2026",
        ),
    ),
    options=(
        Option("stt_extra", "Together", ADDED_TO_ADDRESS),
        Option("tts_voice", "Together", DEFAULT_VOICE),
        Option("tts_extra", "Together", ADDED_TO_ADDRESS),
    ),
)
