"""Agents that follow the user's language: their settings, and a session over a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.agents import Agent
from voicepipe.agents.interpreter import instructions_between, languages_between, name_of
from voicepipe.config import load
from voicepipe.config.docs_table import effective
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.fakes.deepgram_stt import KEY, FakeDeepgram
from voicepipe.testing.user import User, calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn.settings import LanguageSettings

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
    assert {tag: language.voice for tag, language in clinic.items()} == {"de": "Bert", "fr": "Claire"}
    assert clinic["de"].instructions == "Answer in German."
    assert settings.agents["other"].languages == ()
    displayed = {row.key: row.value for row in effective(settings)}
    assert displayed["agents.clinic.languages.fr.voice"] == '"Claire"'


def test_python_agents_have_languages(tmp_path: Path) -> None:
    agent = Agent("Be brief.", languages={"de": {"voice": "Anna"}})
    settings = load(environ={"HOME": str(tmp_path)}, folder=tmp_path, agents=[agent])
    assert [(tag, language.voice) for tag, language in settings.agents["default"].languages] == [("de", "Anna")]


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


async def turns_of(server: Any) -> list[dict[str, Any]]:
    """Return the two records of a session, the first first, as soon as both are stored."""

    async def stored() -> list[dict[str, Any]] | None:
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/turns") as answer:
            found: list[dict[str, Any]] = (await answer.json())["data"]
        return found[::-1] if len(found) == 2 else None

    return await eventually(stored)


async def say(user: User, speech: Samples) -> None:
    await user.speak(speech)
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


# --- fillers --------------------------------------------------------------------------------------


async def test_a_filler_is_spoken_ahead_in_the_voice_of_its_language(fake_server: Any, speech: Samples) -> None:
    languages = {"de": {"voice": "Anna", "filler": "Einen Moment."}}
    agent = Agent("Be brief.", voice="Heart", filler="One moment.", languages=languages, end_of_turn="silence")
    async with FakeDeepgram() as stt, fake_server(settings_of(stt), agents=[agent]) as server:
        stt.script.usual = SttCue(text="Wie spät ist es jetzt?", language="de")
        async with calling(server.url) as user:
            await say(user, speech)
        spoken = {(each.question["input"], each.question["voice"]) for each in server.vendor.tts.received}
    assert {("One moment.", "Heart"), ("Einen Moment.", "Anna")} <= spoken


# --- interpreters ---------------------------------------------------------------------------------

INTERPRETER = {
    "agents.default.instructions": "You answer the telephone.",
    "agents.default.language": "en",
    "agents.default.knowledge": "",
    "agents.between.interpret": ["en", "de"],
    "agents.between.languages.de.voice": "Anna",
    "agents.between.languages.de.instructions": "Say Sie.",
    "agents.between.languages.en.voice": "Emma",
    "agents.between.voice": "Heart",
    "agents.between.end_of_turn": "silence",
    "agents.between.silence_ms": 200,
    "agents.between.speculate": False,
}


@pytest.mark.parametrize("tag", ["de", "DE", "de-AT"])
def test_an_interpreter_has_the_voice_of_a_language_however_its_tag_is_written(tag: str) -> None:
    """As for an agent that follows the user's language: `de` is for `de-AT` too, and capitals make no difference."""
    tables = {"fr": LanguageSettings(tag="fr", voice="louis"), "de": LanguageSettings(tag="de", voice="anna")}
    into, _ = languages_between(("en", tag), tables)
    assert (into.tag, into.user_tag, into.voice) == (tag, "en", "anna")


def test_an_interpreter_inherits_nothing_that_it_would_answer_with(tmp_path: Path) -> None:
    settings = load(overrides=INTERPRETER, environ={"HOME": str(tmp_path)}, folder=tmp_path)
    between = settings.agents["between"]
    assert (between.language, "telephone" in between.instructions) == (None, False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"interpret": ["en"]}, "expected two languages"),
        ({"interpret": ["en", "en-GB"]}, "expected two languages"),
        ({"interpret": ["en", "german!"]}, "expected a language tag"),
        ({"interpret": ["en", "de"], "language": "en"}, "language: expected none for an agent that interprets"),
        ({"interpret": ["en", "de"], "tools": ["end_call"]}, "tools: expected none for an agent that interprets"),
    ],
)
def test_a_wrong_interpreter_is_refused(tmp_path: Path, options: dict[str, object], expected: str) -> None:
    overrides = {f"agents.between.{name}": value for name, value in options.items()}
    with pytest.raises(ConfigError, match=expected):
        load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)


async def test_an_interpreter_says_everything_in_the_other_language(fake_server: Any, speech: Samples) -> None:
    """Each side in its turn; the record of a turn has both texts."""
    async with FakeDeepgram() as stt, fake_server(settings_of(stt) | INTERPRETER) as server:
        async with calling(server.url, query="model=between") as user:
            for said, language, answer in (
                ("What time is it?", "en", "Wie spät ist es?"),
                ("Zwölf Uhr.", "de", "Twelve o'clock."),
            ):
                stt.script.usual = SttCue(text=said, language=language)
                server.vendor.llm.usual = LlmCue(tokens=tokens(answer))
                await say(user, speech)
        answers = answers_of(server)
        records = await turns_of(server)
    assert [voice for _, voice in answers] == ["Anna", "Emma"]
    first, second = (system for system, _ in answers)
    assert first.startswith("You are an interpreter between English and German.")
    assert first.endswith("The latest message is in English: translate it into German.\n\nSay Sie.")
    assert second.endswith("The latest message is in German: translate it into English.")
    assert [each["user_text"].split()[-1] for each in records] == ["it?", "Uhr."]
    assert [each["agent_text"] for each in records] == ["Wie spät ist es?", "Twelve o'clock."]


def test_the_prompt_names_languages_as_llms_know_them() -> None:
    assert name_of("pt-BR") == "Portuguese (pt-BR)"
    assert name_of("tlh") == "the language tlh"
    assert instructions_between(("en", "de"), "Ada is a name.").endswith("\n\nAda is a name.")
