"""Anthropic's profile."""

from __future__ import annotations

from typing import Final

from voicepipe.providers.vendor import Api, Vendor

VENDOR: Final = Vendor(
    apis=(
        Api(
            kind="anthropic",
            title="Anthropic's Messages",
            llm="voicepipe.providers.anthropic.model:open_model",
            llm_address="voicepipe.providers.anthropic.model:address_of",
            models_path="/models?limit=1000",
        ),
    ),
)
