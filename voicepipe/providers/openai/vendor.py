"""OpenAI's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.ports.speech_price import SpeechPrice
from voicepipe.providers.vendor import Api, KnownProvider, Option, SpeechFacts, SpeechModelFacts, Vendor
from voicepipe.turn.cost import Price

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="openai",
            title="OpenAI's chat completions",
            stt="voicepipe.providers.openai.stt:open_transcriber",
            llm="voicepipe.providers.openai.model:open_model",
            llm_address="voicepipe.providers.openai.model:address_of",
            tts="voicepipe.providers.openai.tts:open_synthesizer",
        ),
        Api(
            kind="openai_realtime",
            title="OpenAI's Realtime API",
            stt="voicepipe.providers.openai.realtime_stt:open_transcriber",
            speech="voicepipe.providers.openai.realtime_speech:open_speech_model",
        ),
    ),
    providers=(KnownProvider(name="openai-realtime", kind="openai_realtime", base_url="wss://api.openai.com/v1"),),
    key_env="OPENAI_API_KEY",
    domain="openai.com",
    speech=(
        SpeechFacts(
            spec="openai-realtime/gpt-live-transcribe",
            stage="stt",
            kind="openai_realtime",
            streams="an utterance in, texts out",
            cancel="`input_audio_buffer.commit`",
            formats="PCM16 24 kHz; mu-law and A-law 8 kHz",
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
            spec="openai/whisper-1",
            stage="stt",
            kind="openai",
            streams="an utterance in, its text out",
            cancel="a request at each pause",
            formats="WAV 16 kHz",
            evidence="documented",
            usd=0.006,
            price_source="OpenAI docs, whisper-1, 2026",
        ),
        SpeechFacts(
            spec="openai/tts-1",
            stage="tts",
            kind="openai",
            streams="a clause in, sound out",
            cancel="the request is closed",
            formats="PCM16 24 kHz",
            evidence="documented",
            usd=15.0,
            price_source="OpenAI docs, tts-1, 2026",
        ),
    ),
    speech_models=(
        SpeechModelFacts(
            spec="openai-realtime/gpt-realtime-mini",
            models="gpt-realtime-mini*",
            kind="openai_realtime",
            input_format="PCM16 24 kHz",
            interrupted="`conversation.item.truncate`",
            price=SpeechPrice(text=Price(0.6, 2.4, cached_usd=0.06), audio=Price(10.0, 20.0, cached_usd=0.3)),
            source="OpenAI docs, gpt-realtime-mini, 2025",
        ),
        SpeechModelFacts(
            spec="openai-realtime/gpt-realtime",
            models="gpt-realtime*",
            kind="openai_realtime",
            input_format="PCM16 24 kHz",
            interrupted="`conversation.item.truncate`",
            price=SpeechPrice(text=Price(4.0, 16.0, cached_usd=0.4), audio=Price(32.0, 64.0, cached_usd=0.4)),
            source="OpenAI docs, gpt-realtime, 2025",
        ),
    ),
    options=(
        Option(
            "stt_server",
            "OpenAI realtime",
            "the server behind the API: `openai`, or a server of your own, `speaches` or `vllm`",
        ),
        Option(
            "stt_noise_reduction",
            "OpenAI realtime",
            "at OpenAI: `near_field` for a headset, `far_field` for a room (`off`)",
        ),
        Option("stt_extra", "OpenAI realtime", "a JSON object that is merged into `transcription`"),
    ),
)
