"""The profile of the local engines."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import Api, KnownProvider, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="local",
            title="the local engines",
            stt="voicepipe.providers.local.stt:open_transcriber",
            llm="voicepipe.providers.local.llm:open_model",
            tts="voicepipe.providers.local.tts:open_synthesizer",
        ),
    ),
    providers=(KnownProvider(name="local", kind="local"),),
)
