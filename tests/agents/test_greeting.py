"""An agent that speaks first."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.session import session as session_module
from voicepipe.testing.fakes.cues import LlmCue, tokens
from voicepipe.testing.scenario import Scenario
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn.commands import StartReply, StopReply

GREETING = {
    "agents.default.first_speaker": "agent",
    "agents.default.greeting": "Hello {{patient}}, this is the clinic.",
    "agents.default.variables.patient": "there",
}
TEXT = {"output_modalities": ["text"]}
SPOKEN = "Hello there, this is the clinic."


async def record(server: Any, turn_id: str) -> dict[str, Any]:
    """The record of that turn, once it has an outcome."""

    async def closed() -> dict[str, Any] | None:
        async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/turns") as answer:
            found = next((turn for turn in (await answer.json())["data"] if turn["id"] == turn_id), None)
            return found if found is not None and found["outcome"] else None

    found: dict[str, Any] = await eventually(closed)
    return found


def turn_of(done: Any) -> str:
    return str(done["response"]["metadata"]["voicepipe_turn"])


async def test_the_agent_speaks_first_and_the_model_knows(fake_server: Any, speech: Samples) -> None:
    async with fake_server(GREETING) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("At noon."))
        async with calling(server.url, session={}) as user:
            done = await user.until("response.done")
            assert done["response"]["output"][0]["content"][0]["transcript"] == SPOKEN
            assert server.vendor.llm.received == [], "the words are known"
            found = await record(server, turn_of(done))
            assert (found["cause"], found["outcome"], found["played_text"]) == ("greeting", "completed", SPOKEN)
            await user.speak(speech, then_silence_ms=1_500)
            await user.until("response.done")
        messages = (await server.vendor.llm.nth(0)).question["messages"]
    assert [(each["role"], each["content"]) for each in messages][1] == ("assistant", SPOKEN)


async def test_the_model_may_choose_the_words(fake_server: Any) -> None:
    async with fake_server(GREETING | {"agents.default.greeting": ""}) as server:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Good morning!"))
        async with calling(server.url, session={}) as user:
            done = await user.until("response.done")
    assert done["response"]["output"][0]["content"][0]["transcript"] == "Good morning!"


async def test_a_client_that_sends_nothing_is_greeted(fake_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "GREETING_WAIT_S", 0.0)
    async with fake_server(GREETING) as server, calling(server.url) as user:
        done = await user.until("response.done")
        assert done["response"]["output"][0]["content"][0]["transcript"] == SPOKEN


async def test_a_greeting_without_variables_is_synthesized_once(fake_server: Any) -> None:
    async with fake_server(GREETING | {"agents.default.greeting": "Hello."}) as server:
        for _ in range(2):
            async with calling(server.url, session={}) as user:
                done = await user.until("response.done")
                assert done["response"]["status"] == "completed"
                assert user.sound().size
        assert len(server.vendor.tts.received) == 1


async def test_only_one_session_in_text_is_greeted_once(fake_server: Any) -> None:
    """Two updates, and later the timer: one greeting."""
    async with fake_server(GREETING) as server, calling(server.url, session={"output_modalities": ["text"]}) as user:
        await user.send("session.update", session={"type": "realtime", "instructions": "Be brief."})
        done = await user.until("response.done")
        assert done["response"]["output"][0]["content"] == [{"type": "output_text", "text": SPOKEN}]
        await user.send("response.create")
        await user.until("response.done")
        assert user.kinds().count("response.created") == 2


async def test_a_call_that_goes_on_is_not_greeted_again(fake_server: Any) -> None:
    """Its client says so when it connects, since the greeting may be due before any event of the client's."""
    async with (
        fake_server(GREETING) as server,
        calling(server.url, session=TEXT, query="continues=true") as user,
    ):
        server.vendor.llm.usual = LlmCue(tokens=tokens("At noon."))
        assert await user.prompt("When?") == "At noon."
        assert user.kinds().count("response.created") == 1


# --- the core -----------------------------------------------------------------------------------


def greeted(text: str = "Hello.", *, interruptible: bool = True) -> Scenario:
    """The client is there."""
    scenario = Scenario()
    scenario.is_greeted(text, interruptible=interruptible)
    return scenario


def test_the_client_was_sooner() -> None:
    """Its own request comes in place of a greeting that is not audible yet."""
    scenario = greeted()
    scenario.creates()
    assert [started.words for started in scenario.started()] == ["Hello.", ""]
    assert ("abandoned", "overtaken") in scenario.outcomes()


def test_the_user_was_sooner() -> None:
    scenario = Scenario()
    scenario.speaks()
    assert scenario.is_greeted() == []


@pytest.mark.parametrize("interruptible", [True, False])
def test_whether_a_greeting_may_be_interrupted(interruptible: bool) -> None:
    scenario = greeted(interruptible=interruptible)
    scenario.model_requested()
    scenario.answers("Hello.", 4_000)
    scenario.passes(500)
    scenario.speaks(1_500)
    stopped = any(isinstance(command, StopReply) for command in scenario.driver.commands)
    assert stopped is interruptible
    scenario.pauses()
    scenario.ends_it("Stop, I have a question.")
    scenario.passes(6_000)
    assert any(isinstance(command, StartReply) and not command.words for command in scenario.driver.commands)
    assert scenario.driver.illegal_moves == []


def test_what_is_due_at_any_time_may_come_after_other_turns() -> None:
    """An announcement does; a greeting does not, and neither comes while the user speaks."""
    scenario = greeted()
    scenario.model_requested()
    scenario.answers("Hello.", 400)
    scenario.passes(6_000)
    assert scenario.is_greeted("Hello again.") == []
    scenario.speaks()
    assert scenario.is_greeted("This call is recorded.", at_any_time=True) == []
    scenario.pauses()
    scenario.ends_it("")
    scenario.passes(10_000)
    scenario.is_greeted("This call is recorded.", interruptible=False, at_any_time=True)
    assert scenario.started()[-1].words == "This call is recorded."
    assert scenario.driver.illegal_moves == []
