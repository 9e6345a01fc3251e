"""The agent ends the call, by a tool or after a silence."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.agents import Agent
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.scenario import Scenario
from voicepipe.testing.user import calling
from voicepipe.turn.commands import CommitSilence, EndSession
from voicepipe.turn.settings import ServerTool, Tool

END: dict[str, object] = {"agents.default.tools": "end_call"}
TOOL = ServerTool(tool=Tool("look_up", "", "{}"), label="voicepipe")
IDLE_MS = 4_000


@pytest.mark.virtual_time
async def test_the_call_ends_after_the_goodbye(fake_server: Any, speech: Samples) -> None:
    """All of its audio comes before the close, which is no error."""
    async with fake_server(END) as server, calling(server.url, session={}) as user:
        server.vendor.llm.cue(LlmCue(calls=(CallCue("end_call"),)), LlmCue(tokens=tokens("Goodbye!")))
        await user.send("response.create")
        with pytest.raises(ConnectionError):
            await user.until("no such event")
        assert user.close_code == 1000
        answer = (await server.vendor.llm.nth(1)).question
    done = [event for event in user.events if event["type"] == "response.done"]
    assert done[-1]["response"]["output"][0]["content"][0]["transcript"] == "Goodbye!"
    assert "error" not in user.kinds()
    assert user.sound().size
    assert answer["tool_choice"] == "none"


@pytest.mark.virtual_time
async def test_a_function_of_that_name_ends_nothing(fake_server: Any) -> None:
    """Only the built-in one does, not one of the agent's author or of an MCP server."""
    agent = Agent()

    @agent.tool
    async def end_call() -> str:
        """End the phone call of somebody else."""
        return "It is over."

    async with fake_server(agents=[agent]) as server, calling(server.url, session={}) as user:
        server.vendor.llm.cue(LlmCue(calls=(CallCue("end_call"),)), LlmCue(tokens=tokens("Done.")))
        assert await user.prompt("End it.") == "Done."
        server.vendor.llm.cue(LlmCue(tokens=tokens("Fine.")))
        assert await user.prompt("And now?") == "Fine."


@pytest.mark.parametrize("n_sentences", [1, 20])
@pytest.mark.parametrize("is_spoken", [True, False])
@pytest.mark.virtual_time
async def test_the_words_of_the_reply_that_ends_the_call_are_played(
    fake_server: Any, speech: Samples, n_sentences: int, is_spoken: bool
) -> None:
    """However many they are, and with no second goodbye, which no reply would be requested for."""
    words = "This is a sentence of the goodbye. " * n_sentences
    goodbye = LlmCue(before_calls=tokens(words), calls=(CallCue("end_call"),))
    async with fake_server(END) as server, calling(server.url, session={}) as user:
        server.vendor.llm.cue(goodbye)
        if is_spoken:
            await user.speak(speech)
        else:
            await user.send("response.create")
        with pytest.raises(ConnectionError):
            await user.until("no such event")
        assert user.close_code == 1000
        assert len(server.vendor.llm.received) == 1
    message, call = [event for event in user.events if event["type"] == "response.done"][-1]["response"]["output"]
    assert message["content"][0]["transcript"].split() == words.split()
    assert call["name"] == "end_call"
    assert user.sound().size


def test_no_second_goodbye() -> None:
    """The reply that ends the call has said it."""
    scenario = call_that_ends("Goodbye!")
    n_started = len(scenario.started())
    scenario.tool_ends("ends", final=True)
    scenario.passes(5_000)
    assert len(scenario.started()) == n_started
    (record,) = scenario.driver.records.values()
    assert (record.outcome, record.agent_text) == ("completed", "Goodbye!")


def call_that_ends(words: str) -> Scenario:
    scenario = Scenario()
    scenario.creates(server_tools=(TOOL,))
    scenario.model_requested()
    scenario.token(words)
    scenario.clause(words)
    scenario.sound(800)
    scenario.sent(800)
    scenario.call()
    scenario.model_done("tool_calls")
    scenario.voice_done()
    return scenario


@pytest.mark.parametrize("ends", [True, False])
def test_agent_speaks_up_once(ends: bool) -> None:
    """Then the session ends, if it is set to."""
    scenario = Scenario(idle_timeout_ms=IDLE_MS, idle_ends=ends)
    scenario.utters()
    scenario.answers(duration_ms=1_000)
    for number in range(2):
        got = scenario.passes(1_000 + IDLE_MS)
        if number:
            assert (EndSession() in got) is ends
            assert (CommitSilence() in got) is not ends
        else:
            scenario.goes_silent(30_000)
            scenario.answers("Are you there?", 1_000)


def test_agent_speaks_up_again_after_the_user_spoke() -> None:
    scenario = Scenario(idle_timeout_ms=IDLE_MS, idle_ends=True)
    scenario.utters()
    scenario.answers(duration_ms=1_000)
    for _ in range(3):
        assert CommitSilence() in scenario.passes(1_000 + IDLE_MS)
        scenario.goes_silent(30_000)
        scenario.answers("Are you there?", 1_000)
        scenario.passes(1_500)
        scenario.utters("Yes.")
        scenario.answers(duration_ms=1_000)
    assert EndSession() not in scenario.driver.commands


@pytest.mark.virtual_time
async def test_a_session_ends_after_a_silence(fake_server: Any, speech: Samples) -> None:
    more = {"agents.default.idle_timeout_ms": 1_000, "agents.default.idle_ends": True}
    async with fake_server(more) as server, calling(server.url, session={}) as user:
        server.vendor.llm.usual = LlmCue(tokens=tokens("Yes?"))
        await user.speak(speech, then_silence_ms=1_500)
        with pytest.raises(ConnectionError):
            await user.until("no such event")
        assert user.close_code == 1000
    assert user.kinds().count("input_audio_buffer.timeout_triggered") == 1
