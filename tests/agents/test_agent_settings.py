"""Agents in settings: variables, options of their own, and how a session gets its agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from voicepipe.config import load
from voicepipe.config.docs_table import effective
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.user import User, calling

CLINIC = {
    "agents.clinic.instructions": "You answer for {{ practice }}. The patient is {{patient}}.",
    "agents.clinic.variables.practice": "the clinic",
    "agents.clinic.variables.patient": "unknown",
    "agents.clinic.speed": 1.2,
    "agents.clinic.chosen_by.department": "clinic",
    "agents.clinic.from_metadata": "language,speed",
}


def read(tmp_path: Path, **options: object) -> Settings:
    return load(overrides=CLINIC | options, environ={"HOME": str(tmp_path)}, folder=tmp_path)


async def token(server: Any, session: dict[str, Any], **ours: Any) -> Any:
    body = {"session": session, "voicepipe": ours}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/realtime/client_secrets", json=body) as answer,
    ):
        return await answer.json()


def bearer(minted: Any) -> dict[str, str]:
    assert "value" in minted, minted
    return {"Authorization": f"Bearer {minted['value']}"}


def session_of(user: User) -> Any:
    return next(event["session"] for event in reversed(user.events) if "session" in event)


# --- settings -----------------------------------------------------------------------------------


def test_an_unknown_variable_is_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"agents\.clinic\.instructions: .*\(patient, practice\), got 'town'"):
        read(tmp_path, **{"agents.clinic.instructions": "In {{town}}."})


def test_an_agent_has_limits_of_its_own(tmp_path: Path) -> None:
    settings = read(tmp_path, **{"budget.total_ms": 1_500, "agents.clinic.budget.llm_ttft_ms": 900})
    clinic, default = settings.agents["clinic"], settings.agents["default"]
    assert (clinic.budget.llm_ttft_ms, clinic.budget.total_ms) == (900, 1_500), "the rest is that of [budget]"
    assert default.budget == settings.budget
    found = {row.key: row.value for row in effective(settings)}
    assert found["agents.clinic.budget.llm_ttft_ms"] == "900"
    assert "agents.default.budget.llm_ttft_ms" not in found
    with pytest.raises(ConfigError, match=r"agents\.clinic\.budget\.total_ms: expected a positive number"):
        read(tmp_path, **{"agents.clinic.budget.total_ms": 0})


def test_a_session_is_as_long_as_the_shorter_limit(tmp_path: Path) -> None:
    settings = read(tmp_path, **{"agents.clinic.max_session_s": 60, "server.max_session_s": 100})
    assert (settings.session_limit_s("clinic"), settings.session_limit_s("default")) == (60, 100)
    longer = read(tmp_path, **{"agents.clinic.max_session_s": 500, "server.max_session_s": 100})
    assert longer.session_limit_s("clinic") == 100


def test_metadata_may_set_only_known_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"from_metadata: expected a list of .*, got \"instructions\""):
        read(tmp_path, **{"agents.clinic.from_metadata": "instructions"})


# --- sessions -----------------------------------------------------------------------------------


async def test_variables_are_filled_in(fake_server: Any) -> None:
    """The agent's own values, then those of the token, then the client's."""
    async with fake_server(CLINIC) as server:
        async with calling(server.url, query="agent=clinic") as user:
            assert session_of(user)["instructions"] == "You answer for the clinic. The patient is unknown."
            assert session_of(user)["audio"]["output"]["speed"] == 1.2
        minted = await token(server, {"model": "clinic"}, routing={"patient": "Ada {{practice}}"})
        assert minted["session"]["instructions"] == "You answer for the clinic. The patient is Ada {{practice}}."
        async with calling(server.url, headers=bearer(minted)) as user:
            assert session_of(user)["instructions"] == "You answer for the clinic. The patient is Ada {{practice}}."
            variables = {"practice": {"type": "input_text", "text": "Dr. Wu"}}
            await user.send(
                "session.update", session={"type": "realtime", "prompt": {"id": "p", "variables": variables}}
            )
            await user.until("session.updated")
            assert session_of(user)["instructions"] == "You answer for Dr. Wu. The patient is Ada {{practice}}."
            assert session_of(user)["prompt"] == {"id": "p", "variables": {"practice": "Dr. Wu"}}


async def test_an_unknown_variable_of_a_client_is_refused_with_the_list(fake_server: Any) -> None:
    async with fake_server(CLINIC) as server, calling(server.url, query="agent=clinic") as user:
        prompt = {"id": "p", "variables": {"town": "Bonn"}}
        await user.send("session.update", session={"type": "realtime", "prompt": prompt})
        error = (await user.until("error"))["error"]
        assert (error["code"], error["param"]) == ("unknown_variable", "session.prompt.variables.town")
        assert "(patient, practice)" in error["message"]


async def test_locked_instructions_have_locked_variables(fake_server: Any) -> None:
    async with fake_server(CLINIC) as server:
        minted = await token(server, {"model": "clinic"}, locks=[{"field": "instructions", "hidden": True}])
        async with calling(server.url, headers=bearer(minted)) as user:
            prompt = {"id": "p", "variables": {"patient": "the owner"}}
            await user.send("session.update", session={"type": "realtime", "prompt": prompt})
            error = (await user.until("error"))["error"]
            assert (error["code"], error["param"]) == ("field_locked", "session.instructions")


async def test_a_tokens_metadata_chooses_the_agent_and_its_options(fake_server: Any) -> None:
    async with fake_server(CLINIC) as server:
        metadata = {"department": "clinic", "speed": "0.8", "voice": "other"}
        config = {"providerData": {"voicepipe": {"metadata": metadata}}}
        async with calling(server.url, headers=bearer(await token(server, config))) as user:
            session = session_of(user)
        assert session["instructions"].startswith("You answer for")
        assert session["audio"]["output"]["speed"] == 0.8
        assert session["audio"]["output"]["voice"] == "default", "from_metadata does not name it"
        limited = await token(server, config, limits={"agents": ["default"]})
        async with calling(server.url, headers=bearer(limited)) as user:
            assert not session_of(user)["instructions"].startswith("You answer for"), "the token allows another agent"


async def test_a_wrong_value_in_metadata_is_refused_when_the_token_is_minted(fake_server: Any) -> None:
    async with fake_server(CLINIC) as server:
        refused = await token(server, {"model": "clinic"}, routing={"speed": "fast"})
        assert "metadata.speed: expected a number from 0.25 to 1.5" in refused["error"]["message"]


@pytest.mark.parametrize(("query", "strict"), [("agent=clinc", False), ("model=clinc", True)])
async def test_an_unknown_agent_is_refused_with_the_list(fake_server: Any, query: str, strict: bool) -> None:
    more = CLINIC | {"server.strict_models": strict}
    async with (
        fake_server(more) as server,
        aiohttp.ClientSession() as http,
        http.get(f"{server.url}/v1/realtime?{query}") as answer,
    ):
        assert answer.status == 404
        assert "expected one of default, clinic." in (await answer.json())["error"]["message"]


async def test_words_are_pronounced_as_the_operator_spells_them(fake_server: Any) -> None:
    """The TTS gets the spelling; the client gets the word."""
    more = {f"agents.default.pronunciations.{word}": said for word, said in {"Wu": "Woo", "SQL": "sequel"}.items()}
    async with fake_server(more) as server:
        written = "Dr Wu knows SQL, not SQLite."
        server.vendor.llm.usual = LlmCue(tokens=tokens(written))
        async with calling(server.url, session={}) as user:
            await user.send("response.create")
            done = await user.until("response.done")
        assert done["response"]["output"][0]["content"][0]["transcript"] == written
        given = " ".join(request.question["input"] for request in server.vendor.tts.received)
    assert "Woo knows sequel, not SQLite" in given
