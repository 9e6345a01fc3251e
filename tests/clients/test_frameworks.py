"""Frameworks for voice agents hold a spoken turn with a running server, unmodified: they only have its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from voicepipe.testing.fakes.cues import LlmCue, TtsCue, tokens

pytestmark = pytest.mark.slow

TRANSCRIPT = "what time is it"
GREETING = "Hello."

Model = Callable[[dict[str, Any]], LlmCue]


@pytest.fixture
def greeting_model(model: Model) -> Model:
    """A model that greets before the user has spoken."""

    def answer(question: dict[str, Any]) -> LlmCue:
        spoken = any(message["role"] == "user" for message in question["messages"])
        return model(question) if spoken else LlmCue(tokens=tokens(GREETING))

    return answer


@pytest.mark.parametrize("flags", [(), ("--go-on", "0.3")], ids=" ".join)
async def test_pipecat(
    fake_server: Any, drive: Any, pipecat_py: list[str], greeting_model: Model, answer: str, flags: tuple[str, ...]
) -> None:
    """Its service in a pipeline: a greeting and an answer; speech over an answer."""
    async with fake_server() as server:
        server.vendor.llm.usual = greeting_model
        server.vendor.tts.usual = TtsCue(gap_ms=80)  # the answer is not complete when the user speaks over it
        result = await drive(pipecat_py, server.url, *flags)
    assert result["transcript"] == (f"{TRANSCRIPT} {TRANSCRIPT}" if "--go-on" in flags else TRANSCRIPT)
    assert result["history"][:2] == [["assistant", GREETING], ["user", TRANSCRIPT]]
    assert result["history"][-1] == ["assistant", answer]
    if "--go-on" in flags:
        assert [role for role, _ in result["history"]] == ["assistant", "user", "assistant", "user", "assistant"]
        # Its own history keeps all words of an answer; the server's has those that were played.
        cut = server.vendor.llm.received[-1].question["messages"][-2]
        assert cut["role"] == "assistant"
        assert answer.startswith(cut["content"])
        assert len(cut["content"]) < len(answer)


async def test_pipecat_runs_a_function_that_was_prepared_before_the_end_of_the_turn(
    fake_server: Any,
    drive: Any,
    pipecat_py: list[str],
    greeting_model: Model,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It requests the answer to a function's result only if the end of the user's turn came through its pipeline before
    the call. A step of the application takes 100 ms there, and a busy machine more: the server holds the call for 2 s.
    """
    monkeypatch.setattr("voicepipe.wiring.sessions.CALLS_WAIT_MS", 2_000)
    async with fake_server() as server:
        server.vendor.llm.usual = greeting_model
        result = await drive(pipecat_py, server.url, "--tool", "--step", "100")
    assert result["calls"] == ["Paris"]
    assert result["history"][-1] == ["assistant", answer]


@pytest.mark.parametrize("flags", [(), ("--tool",), ("--go-on", "0.3")], ids=" ".join)
async def test_livekit(
    fake_server: Any, drive: Any, livekit_py: list[str], model: Model, answer: str, flags: tuple[str, ...]
) -> None:
    """The Realtime model of its plugin: an answer, a function and its answer, speech over an answer."""
    async with fake_server() as server:
        server.vendor.llm.usual = model
        server.vendor.tts.usual = TtsCue(gap_ms=80)  # the answer is not complete when the user speaks over it
        result = await drive(livekit_py, server.url, *flags)
    assert result["transcript"] == (f"{TRANSCRIPT} {TRANSCRIPT}" if "--go-on" in flags else TRANSCRIPT)
    assert result["calls"] == ([["get_weather", '{"place": "Paris"}']] if "--tool" in flags else [])
    assert result["history"][0] == ["user", TRANSCRIPT]
    assert result["history"][-1] == ["assistant", answer]
    if "--go-on" in flags:
        assert (result["interrupted"], result["late_ms"]) == (1, 0)
        assert result["statuses"] == ["cancelled", "completed"]
