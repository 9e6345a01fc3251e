"""Google's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.ports.speech_price import SpeechPrice
from voicepipe.providers.vendor import Api, KnownProvider, SpeechModelFacts, Vendor
from voicepipe.turn.cost import Price

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="gemini",
            title="Gemini's own API",
            llm="voicepipe.providers.google.model:open_model",
            llm_address="voicepipe.providers.google.model:address_of",
            models_path="/models?pageSize=1000",
        ),
        Api(
            kind="gemini_live",
            title="Gemini's Live API",
            speech="voicepipe.providers.google.live:open_speech_model",
        ),
    ),
    providers=(
        KnownProvider(name="gemini-live", kind="gemini_live", base_url="wss://generativelanguage.googleapis.com"),
    ),
    key_env="GEMINI_API_KEY",
    domain="generativelanguage.googleapis.com",
    speech_models=(
        SpeechModelFacts(
            spec="gemini-live/gemini-2.5-flash-native-audio-preview-12-2025",
            models="gemini-2.5-flash-native-audio*",
            kind="gemini_live",
            input_format="PCM16 16 kHz",
            interrupted="another connection, which gets what was played",
            price=SpeechPrice(text=Price(0.5, 2.0), audio=Price(3.0, 12.0)),
            source="Gemini API pricing, native audio, 2025",
        ),
    ),
)
