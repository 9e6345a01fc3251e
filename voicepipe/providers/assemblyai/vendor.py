"""AssemblyAI's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import ADDED_TO_ADDRESS, Api, KnownProvider, Option, SpeechFacts, Vendor

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
            formats="PCM16 16 kHz; mu-law 8 kHz; 50 ms at least",
            evidence="documented",
            usd=0.15 / 60,
            priced="universal-streaming*",
            price_source="assemblyai.com/pricing, by the hour of an open connection, 2025",
        ),
    ),
    options=(
        Option("end_of_turn_confidence", "AssemblyAI", "how sure it must be, 0 to 1 (0.4)"),
        Option("min_turn_silence_ms", "AssemblyAI", "the silence that ends a turn when it is sure (160)"),
        Option("max_turn_silence_ms", "AssemblyAI", "the silence that ends a turn when it is not sure (1280)"),
        Option("extra", "AssemblyAI", ADDED_TO_ADDRESS),
    ),
)
