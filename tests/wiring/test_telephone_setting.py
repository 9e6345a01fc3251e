"""The setting `providers.NAME.telephone_audio`."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import load
from voicepipe.ports.transcriber import Transcriber
from voicepipe.wiring.stages import Stages

BOTH = {"audio/pcmu", "audio/pcma"}


def transcriber(folder: Path, **settings: object) -> Transcriber:
    overrides = {
        "agents.default.stt": "deepgram/nova-3, elevenlabs/scribe_v2_realtime",
        "agents.default.llm": "openai/gpt-5-mini",
        "agents.default.tts": "openai/tts-1",
        **settings,
    }
    keys = dict.fromkeys(("DEEPGRAM_API_KEY", "ELEVENLABS_API_KEY", "OPENAI_API_KEY"), "k")
    return Stages(load(overrides=overrides, environ={"HOME": str(folder), **keys}, folder=folder)).transcriber_of(
        "default"
    )


@pytest.mark.parametrize(
    ("without", "expected"), [((), BOTH), (("deepgram",), BOTH), (("deepgram", "elevenlabs"), set())]
)
def test_a_provider_without_it_gets_the_audio_resampled(
    tmp_path: Path, without: tuple[str, ...], expected: set[str]
) -> None:
    """The pool takes 8 kHz as long as one of its providers does."""
    settings = {f"providers.{name}.telephone_audio": False for name in without}
    assert transcriber(tmp_path, **settings).capabilities.telephone == expected
