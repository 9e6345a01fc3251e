"""Agents that follow the user's language: their settings, and a session over a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.agents import Agent
from voicepipe.config import load
from voicepipe.config.docs_table import effective
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.fakes.deepgram_stt import KEY, FakeDeepgram
from voicepipe.testing.user import User, calling

GERMAN = {
    "agents.default.languages.de.voice": "Anna",
    "agents.default.languages.de.instructions": "Answer in German.",
}


def read(tmp_path: Path, **options: object) -> Settings:
    return load(overrides=GERMAN | options, environ={"HOME": str(tmp_path)}, folder=tmp_path)


def test_languages_are_inherited_by_name(tmp_path: Path) -> None:
    """An agent changes one option of one language; with another TTS it has no voices of the first."""
    settings = read(
        tmp_path,
        **{
            "agents.clinic.languages.de.voice": "Bert",
            "agents.clinic.languages.fr.voice": "Claire",
            "agents.other.tts": "openai/tts",
        },
    )
    clinic = dict(settings.agents["clinic"].languages)
    assert {tag: its.voice for tag, its in clinic.items()} == {"de": "Bert", "fr": "Claire"}
    assert clinic["de"].instructions == "Answer in German."
    assert settings.agents["other"].languages == ()
    displayed = {row.key: row.value for row in effective(settings)}
    assert displayed["agents.clinic.languages.fr.voice"] == '"Claire"'


def test_python_agents_have_languages(tmp_path: Path) -> None:
    agent = Agent("Be brief.", languages={"de": {"voice": "Anna"}})
    settings = load(environ={"HOME": str(tmp_path)}, folder=tmp_path, agents=[agent])
    assert [(tag, its.voice) for tag, its in settings.agents["default"].languages] == [("de", "Anna")]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("agents.default.languages.german!.voice", "Anna", "languages.german!: expected a language tag"),
        ("agents.default.languages.de.speaker", "Anna", "languages.de.speaker: unknown setting"),
        ("agents.default.languages", "de", "agents.default.languages: expected a table"),
        ("agents.default.languages.de.instructions", "Hello {{nobody}}", "languages.de.instructions: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, key: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(overrides={key: value}, environ={"HOME": str(tmp_path)}, folder=tmp_path)
    assert expected in str(refused.value)


def answers_of(server: Any) -> list[tuple[str, str]]:
    """Return the instructions and the voice of each answer."""
    systems = [each.question["messages"][0]["content"] for each in server.vendor.llm.received]
    voices = [each.question["voice"] for each in server.vendor.tts.received]
    return list(zip(systems, voices, strict=True))


def settings_of(stt: FakeDeepgram) -> dict[str, object]:
    """Return the settings of an STT that detects languages."""
    return {
        "providers.dg.kind": "deepgram",
        "providers.dg.base_url": stt.base_url,
        "providers.dg.api_key": KEY,
        "agents.default.stt": "dg/nova-3",
    }


def follower() -> Agent:
    languages = {"de": {"voice": "Anna", "instructions": "Say Sie, {{caller}}."}}
    return Agent(
        "Be brief.",
        voice="Heart",
        variables={"caller": "Ada"},
        languages=languages,
        end_of_turn="silence",
        silence_ms=200,
        speculate=False,
    )


async def say(user: User, speech: Samples) -> None:
    await user.say(speech)
    await user.until("response.done")


async def test_a_session_follows_its_user(fake_server: Any, speech: Samples) -> None:
    """From the first words on; what the client sets stays."""
    own = {"instructions": "Sing.", "audio": {"output": {"voice": "Low"}}}
    async with FakeDeepgram() as stt, fake_server(settings_of(stt), agents=[follower()]) as server:
        stt.script.usual = SttCue(text="Wie spät ist es jetzt?", language="de")
        server.vendor.llm.usual = LlmCue(tokens=tokens("Yes."))
        async with calling(server.url) as user:
            await say(user, speech)
        async with calling(server.url, session=own) as user:
            await say(user, speech)
        answers = answers_of(server)
    assert answers == [("Be brief.\n\nSay Sie, Ada.", "Anna"), ("Sing.", "Low")]
