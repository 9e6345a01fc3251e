"""Deepgram's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import ADDED_TO_ADDRESS, Api, KnownProvider, Option, SpeechFacts, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="deepgram",
            title="Deepgram's Nova, Flux and Aura",
            stt="voicepipe.providers.deepgram.stt:open_transcriber",
            tts="voicepipe.providers.deepgram.tts:open_synthesizer",
        ),
        Api(
            kind="flux",
            title="Deepgram's Flux",
            stt="voicepipe.providers.deepgram.flux:open_transcriber",
        ),
    ),
    providers=(KnownProvider(name="deepgram", kind="deepgram", base_url="wss://api.deepgram.com/v1"),),
    key_env="DEEPGRAM_API_KEY",
    domain="deepgram.com",
    speech=(
        SpeechFacts(
            spec="deepgram/nova-3",
            stage="stt",
            kind="deepgram",
            streams="the call in, texts out",
            turn_events="end of speech",
            word_times="yes, to place words",
            cancel="`Finalize`",
            formats="PCM16 16 kHz; mu-law and A-law 8 kHz",
            evidence="documented",
            usd=0.0048,
            priced="nova-3*",
            price_source="deepgram.com/pricing, pay as you go, streaming, August 2026",
        ),
        SpeechFacts(
            spec="deepgram/flux-general-en",
            stage="stt",
            kind="deepgram",
            streams="the call in, texts out",
            turn_events="start, end expected, taken back, end",
            word_times="yes, to place words",
            cancel="its next text, else `ForceEndTurn`",
            formats="PCM16 16 kHz; mu-law and A-law 8 kHz",
            evidence="documented",
            usd=0.0065,
            price_source="deepgram.com/pricing, pay as you go, 2026",
        ),
        SpeechFacts(
            spec="deepgram/aura-2-thalia-en",
            stage="tts",
            kind="deepgram",
            streams="clauses in, sound out",
            cancel="the socket is closed",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=30.0,
            priced="aura-2-*",
            price_source="deepgram.com/pricing, pay as you go, 2025",
        ),
    ),
    options=(
        Option(
            "eot_threshold",
            "Flux",
            "how sure it must be that the user has finished, 0.5 to 1 (0.7); 1 never ends a turn",
        ),
        Option("eager_eot_threshold", "Flux", "how sure to expect the end, 0.3 to 0.9 (0.5); 0 turns that off"),
        Option("eot_timeout_ms", "Flux", "silence that ends its turn, however unsure it is (5000)"),
        Option(
            "force_end_after_ms",
            "Flux",
            "how long the server waits at a pause for Flux's next message before it ends Flux's turn (300)",
        ),
        Option("endpointing_ms", "Deepgram Nova", "silence that ends a segment (10)"),
        Option("smart_format", "Deepgram Nova", "numbers and dates in written form (`false`)"),
        Option("extra", "Deepgram", ADDED_TO_ADDRESS),
        Option("tts_extra", "Deepgram", f'{ADDED_TO_ADDRESS}: `{{"mip_opt_out": "true"}}`'),
    ),
)
