"""Cartesia's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import (
    ADDED_TO_ADDRESS,
    DEFAULT_VOICE,
    MERGED_INTO_REQUEST,
    Api,
    KnownProvider,
    Option,
    SpeechFacts,
    Vendor,
)

CREDIT_USD: Final = 5 / 100_000
"""Price in the smallest paid plan; larger ones give more for a dollar. Source: cartesia.ai/pricing, June 2026."""

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="cartesia",
            title="Cartesia's Ink and Sonic",
            stt="voicepipe.providers.cartesia.stt:open_transcriber",
            tts="voicepipe.providers.cartesia.tts:open_synthesizer",
        ),
    ),
    providers=(KnownProvider(name="cartesia", kind="cartesia", base_url="wss://api.cartesia.ai"),),
    key_env="CARTESIA_API_KEY",
    domain="cartesia.ai",
    speech=(
        SpeechFacts(
            spec="cartesia/ink-2",
            stage="stt",
            kind="cartesia",
            streams="the call in, texts out",
            turn_events="start, end expected, taken back, end",
            cancel="none: what is known counts after a while",
            formats="PCM16 16 kHz; mu-law and A-law 8 kHz",
            evidence="documented",
            usd=180 * CREDIT_USD,
            price_source="docs.cartesia.ai/pricing, 3 credits a second, 2026",
        ),
        SpeechFacts(
            spec="cartesia/ink-whisper",
            stage="stt",
            kind="cartesia",
            streams="the call in, texts out",
            cancel="`finalize`",
            formats="PCM16 16 kHz; mu-law and A-law 8 kHz",
            evidence="documented",
            usd=60 * CREDIT_USD,
            price_source="docs.cartesia.ai/pricing, a credit a second, 2026",
        ),
        SpeechFacts(
            spec="cartesia/sonic-3",
            stage="tts",
            kind="cartesia",
            streams="clauses in, sound out",
            word_times="yes",
            cancel="the context is cancelled",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=1_000_000 * CREDIT_USD,
            priced="sonic*",
            price_source="docs.cartesia.ai/pricing, a credit a character, 2026",
        ),
    ),
    options=(
        Option("stt_turns", "Cartesia", "`false`: Ink 2 finds no turns; the server requests its final text"),
        Option(
            "stt_turn_eager_end_threshold", "Cartesia", "how likely more speech may be for the end to be expected (0.4)"
        ),
        Option("stt_turn_end_threshold", "Cartesia", "how likely more speech may be for the end to be certain (0.2)"),
        Option("stt_turn_end_timeout_ms", "Cartesia", "silence that ends a turn, however unsure it is (5600)"),
        Option("stt_extra", "Cartesia", ADDED_TO_ADDRESS),
        Option("tts_voice", "Cartesia", DEFAULT_VOICE),
        Option("tts_extra", "Cartesia", MERGED_INTO_REQUEST),
    ),
)
