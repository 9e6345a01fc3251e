"""A speech vendor needs no section of the settings: its key in the environment is enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import load
from voicepipe.config.speech_vendors import for_stage
from voicepipe.providers.built_in import VOICES, factory, key_env_of
from voicepipe.providers.vendor import SpeechFacts
from voicepipe.registry import Spec
from voicepipe.values import replace


@pytest.mark.parametrize("facts", [voice for voice in VOICES if key_env_of(voice)], ids=lambda facts: facts.spec)
def test_its_key_is_enough_to_speak(tmp_path: Path, facts: SpeechFacts) -> None:
    """Of each voice that the table of vendors names, and that needs one."""
    environ = {"HOME": str(tmp_path), key_env_of(facts): "k-1"}
    settings = load(overrides={"agents.default.tts": facts.spec}, environ=environ, folder=tmp_path)
    named = Spec.parse(facts.spec)
    entry = for_stage(named.provider, "tts", settings.connection(named, key="agents.default.tts"))
    assert (entry.api_key, entry.kind) == ("k-1", facts.kind)
    assert factory(entry.kind, "tts", key="agents.default.tts")(named, entry).name == facts.spec


@pytest.mark.parametrize(
    ("spec", "key_env"),
    [
        ("deepgram/nova-3", "DEEPGRAM_API_KEY"),
        ("deepgram/flux-general-en", "DEEPGRAM_API_KEY"),
        ("assemblyai/universal-streaming", "ASSEMBLYAI_API_KEY"),
        ("cartesia/ink-2", "CARTESIA_API_KEY"),
        ("elevenlabs/scribe_v2_realtime", "ELEVENLABS_API_KEY"),
        ("openai-realtime/gpt-live-transcribe", "OPENAI_API_KEY"),
        ("inworld/inworld-stt-1", "INWORLD_API_KEY"),
    ],
)
def test_its_key_is_enough(tmp_path: Path, spec: str, key_env: str) -> None:
    settings = load(
        overrides={"agents.default.stt": spec}, environ={"HOME": str(tmp_path), key_env: "k-1"}, folder=tmp_path
    )
    assert settings.agents["default"].stt == (spec,)
    named = Spec.parse(spec)
    entry = for_stage(named.provider, "stt", settings.connection(named, key="agents.default.stt"))
    assert entry.api_key == "k-1"
    assert entry.base_url.startswith("wss://")
    assert callable(factory(entry.kind, "stt", key="agents.default.stt"))


def test_one_provider_name_for_llm_and_speech(tmp_path: Path) -> None:
    """Where a vendor's speech speaks another wire than its language models, each stage gets its own; an address of
    one's own stays, and so do the stage's options."""
    overrides = {"agents.default.stt": "inworld/inworld-stt-1", "providers.inworld.options.stt_extra": "{}"}
    environ = {"HOME": str(tmp_path), "INWORLD_API_KEY": "k-1"}
    settings = load(overrides=overrides, environ=environ, folder=tmp_path)
    connection = settings.connection(Spec("inworld", "inworld-stt-1"), key="x")
    assert for_stage("inworld", "llm", connection) is connection
    assert for_stage("openai", "tts", connection) is connection
    stt = for_stage("inworld", "stt", connection)
    assert (stt.kind, stt.base_url, stt.options) == ("inworld", "wss://api.inworld.ai", (("stt_extra", "{}"),))
    tts = for_stage("inworld", "tts", replace(connection, base_url="ws://127.0.0.1:1"))
    assert (tts.kind, tts.base_url, tts.options) == ("inworld", "ws://127.0.0.1:1", ())
