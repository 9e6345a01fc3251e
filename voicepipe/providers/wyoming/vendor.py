"""Wyoming's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import Api, SpeechFacts, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="wyoming",
            title="Wyoming, Home Assistant's protocol",
            stt="voicepipe.providers.wyoming.stt:open_transcriber",
            tts="voicepipe.providers.wyoming.tts:open_synthesizer",
        ),
    ),
    speech=(
        SpeechFacts(
            spec="NAME/default",
            stage="stt",
            kind="wyoming",
            streams="an utterance in, its text out",
            cancel="a connection at each pause",
            formats="PCM16 16 kHz",
            evidence="documented",
        ),
        SpeechFacts(
            spec="NAME/default",
            stage="tts",
            kind="wyoming",
            streams="a clause in, sound out",
            cancel="the connection is cut",
            formats="PCM16, any rate",
            evidence="documented",
        ),
    ),
)
