"""ElevenLabs' profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import ADDED_TO_ADDRESS, DEFAULT_VOICE, Api, KnownProvider, Option, SpeechFacts, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="elevenlabs",
            title="ElevenLabs' Scribe and voices",
            stt="voicepipe.providers.elevenlabs.stt:open_transcriber",
            tts="voicepipe.providers.elevenlabs.tts:open_synthesizer",
        ),
    ),
    providers=(KnownProvider(name="elevenlabs", kind="elevenlabs", base_url="wss://api.elevenlabs.io/v1"),),
    key_env="ELEVENLABS_API_KEY",
    domain="elevenlabs.io",
    speech=(
        SpeechFacts(
            spec="elevenlabs/scribe_v2_realtime",
            stage="stt",
            kind="elevenlabs",
            streams="an utterance in, texts out",
            cancel="`commit`",
            formats="PCM16 16 kHz; mu-law and PCM16 8 kHz",
            evidence="documented",
            usd=0.39 / 60,
            price_source="elevenlabs.io/pricing/api, June 2026",
        ),
        SpeechFacts(
            spec="elevenlabs/eleven_flash_v2_5",
            stage="tts",
            kind="elevenlabs",
            streams="clauses in, sound out",
            word_times="yes, from those of characters",
            cancel="the context is closed",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=50.0,
            priced="eleven_flash*",
            price_source="elevenlabs.io/pricing/api, June 2026",
        ),
    ),
    options=(
        Option(
            "stt_keep_logs", "ElevenLabs", "`false`: it keeps none of the audio, for customers with that right (`true`)"
        ),
        Option("stt_extra", "ElevenLabs", ADDED_TO_ADDRESS),
        Option("tts_voice", "ElevenLabs", DEFAULT_VOICE),
        Option("tts_voice_settings", "ElevenLabs", "a JSON object, its `voice_settings`"),
    ),
)
