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
        Api(kind="gguf", title="a GGUF file on this machine", llm="voicepipe.providers.local.llm:open_gguf"),
    ),
    providers=(KnownProvider(name="local", kind="local"), KnownProvider(name="gguf", kind="gguf")),
)
