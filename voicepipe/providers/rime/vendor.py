"""Rime's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import ADDED_TO_ADDRESS, DEFAULT_VOICE, Api, KnownProvider, Option, SpeechFacts, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="rime",
            title="Rime's WebSocket",
            tts="voicepipe.providers.rime.tts:open_synthesizer",
        ),
    ),
    providers=(KnownProvider(name="rime", kind="rime", base_url="wss://users-ws.rime.ai"),),
    key_env="RIME_API_KEY",
    domain="rime.ai",
    speech=(
        SpeechFacts(
            spec="rime/arcana",
            stage="tts",
            kind="rime",
            streams="clauses in, sound out",
            word_times="yes",
            cancel="`clear`, and the socket is closed",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=30.0,
            priced="arcana*",
            price_source="rime.ai/pricing, by the minute of some 1000 characters, May 2026",
        ),
    ),
    options=(
        Option("tts_voice", "Rime", DEFAULT_VOICE),
        Option("tts_extra", "Rime", ADDED_TO_ADDRESS),
    ),
)
