"""A speech vendor needs no section of the settings: its key in the environment is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import load
from voicepipe.registry import Spec, factory


@pytest.mark.parametrize(
    ("spec", "key_env"),
    [
        ("deepgram/nova-3", "DEEPGRAM_API_KEY"),
        ("deepgram/flux-general-en", "DEEPGRAM_API_KEY"),
        ("assemblyai/universal-streaming", "ASSEMBLYAI_API_KEY"),
        ("cartesia/ink-2", "CARTESIA_API_KEY"),
    ],
)
def test_its_key_is_enough(tmp_path: Path, spec: str, key_env: str) -> None:
    settings = load(
        overrides={"agents.default.stt": spec}, environ={"HOME": str(tmp_path), key_env: "k-1"}, folder=tmp_path
    )
    assert settings.agents["default"].stt == spec
    entry = settings.providers[Spec.parse(spec).provider]
    assert entry.api_key == "k-1"
    assert entry.base_url.startswith("wss://")
    assert callable(factory(entry.kind, "stt", key="agents.default.stt"))
