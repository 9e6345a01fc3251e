"""Google's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import Api, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="gemini",
            title="Gemini's own API",
            llm="voicepipe.providers.google.model:open_model",
            llm_address="voicepipe.providers.google.model:address_of",
            models_path="/models?pageSize=1000",
        ),
    ),
)
