"""AssemblyAI's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import Api, KnownProvider, SpeechFacts, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="assemblyai",
            title="AssemblyAI's Universal-Streaming",
            stt="voicepipe.providers.assemblyai.stt:open_transcriber",
        ),
    ),
    providers=(KnownProvider(name="assemblyai", kind="assemblyai", base_url="wss://streaming.assemblyai.com/v3"),),
    key_env="ASSEMBLYAI_API_KEY",
    domain="assemblyai.com",
    speech=(
        SpeechFacts(
            spec="assemblyai/universal-streaming",
            stage="stt",
            kind="assemblyai",
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
    ),
)
