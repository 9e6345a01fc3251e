"""Acting on the budget on a real socket: what is played to the user, and what stays out of prompt and record."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CallCue, Hold, LlmCue, Status, tokens
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.user import calling
from voicepipe.testing.waiting import eventually

VAD = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
FILLER, APOLOGY = "One moment.", "Sorry. That went wrong."
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@pytest.fixture
def phrases() -> dict[str, str]:
    """Both of them."""
    return {"filler": FILLER, "apology": APOLOGY}


async def closed(server: Any, turn_id: str) -> dict[str, Any]:
    """The record of that turn, once it has an outcome."""
    record: dict[str, Any] = await eventually(lambda: server.closed(turn_id))
    return record


def turn_of(done: dict[str, Any]) -> str:
    turn_id: str = done["response"]["metadata"]["voicepipe_turn"]
    return turn_id


def said_in(done: dict[str, Any]) -> list[tuple[str, str]]:
    """(item id up to its first underscore, words) of each output of a response."""
    output = done["response"]["output"]
    return [(item["id"].partition("_")[0], item["content"][0]["transcript"]) for item in output]


@pytest.mark.parametrize("phrases", [{"filler": "", "apology": APOLOGY}])
@pytest.mark.parametrize("answer", [("**", "**"), ("\N{GRINNING FACE}",), ("```", "x" * 5_000, "```")])
async def test_an_answer_of_which_nothing_can_be_spoken_is_apologised_for(
    server: Any, question: Samples, answer: tuple[str, ...]
) -> None:
    """Else the user waits in silence for an answer that the record has as completed."""
    server.vendor.llm.cue(LlmCue(tokens=answer))
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question)
        failed = await user.until("response.done")
        assert said_in(await user.until("response.done")) == [("item", APOLOGY)]
    record = await closed(server, turn_of(failed))
    assert (failed["response"]["status"], record["outcome"], record["failed_stage"]) == ("failed", "failed", "llm")


@pytest.mark.parametrize("phrases", [{"filler": "", "apology": APOLOGY}])
async def test_a_failed_turn_is_apologised_for_and_the_call_goes_on(server: Any, question: Samples) -> None:
    """`response.done` says failed; then a response says the words; the next question is answered as if nothing was."""
    server.vendor.llm.cue(LlmCue(fault=Status(500)))
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question)
        failed = await user.until("response.done")
        assert failed["response"]["status"] == "failed"
        apology = await user.until("response.done")
        assert apology["response"]["status"] == "completed"
        assert said_in(apology) == [("item", APOLOGY)]
        assert apology["response"]["metadata"]["voicepipe_apology_for"] == turn_of(failed)
        assert len(user.sound()) > 0
        record = await closed(server, turn_of(apology))
        await user.speak(question)
        assert (await user.until("response.done"))["response"]["status"] == "completed"
    assert (record["cause"], record["outcome"], record["agent_text"]) == ("apology", "completed", APOLOGY)
    assert (await closed(server, turn_of(failed)))["actions"] == ["apology"]
    messages = (await server.vendor.llm.nth(1)).question["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]


async def test_a_late_answer_has_a_filler_before_it(server: Any, question: Samples) -> None:
    """The phrase is an item of its own in the answer's response, complete before the answer begins."""
    hold = Hold()
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is noon."), hold=hold))
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question)
        await user.until("response.output_audio.delta")
        hold.release.set()
        done = await user.until("response.done")
        kinds = user.kinds()
        record = await closed(server, turn_of(done))
        await user.speak(question)
        await user.until("response.done")
    assert said_in(done) == [("filler", FILLER), ("item", "It is noon.")]
    first_item_done = kinds.index("response.output_item.done")
    second_item_added = len(kinds) - 1 - kinds[::-1].index("response.output_item.added")
    assert first_item_done < second_item_added
    assert (record["actions"], record["filler"], record["agent_text"]) == (["filler"], FILLER, "It is noon.")
    assert record["marks"]["filler_audible"] < record["marks"]["first_sound"] <= record["marks"]["first_audible"]
    messages = (await server.vendor.llm.nth(1)).question["messages"]
    assert [message["content"] for message in messages[2:3]] == ["It is noon."]


async def test_a_slow_tool_has_a_filler_while_it_runs(server: Any, question: Samples) -> None:
    """A response of its own, with all its audio, that no model reads; the client's request for the answer is
    accepted, and the record of the one turn has the phrase.
    """
    call = LlmCue(tokens=(), calls=(CallCue("look", ("{}",), "c1"),), finish="tool_calls")
    server.vendor.llm.cue(call)
    async with calling(server.base_url, session={**VAD, "tools": [LOOK]}) as user:
        await user.speak(question)
        called = await user.until("response.done")
        assert [item["type"] for item in called["response"]["output"]] == ["function_call"]
        filler = await user.until("response.done")
        n_bytes = len(user.sound())
        output = {"type": "function_call_output", "call_id": "c1", "output": "noon"}
        await user.send("conversation.item.create", item=output)
        await user.send("response.create")
        answer = await user.until("response.done")
        record = await closed(server, turn_of(answer))
    assert (said_in(filler), filler["response"]["status"]) == ([("filler", FILLER)], "completed")
    assert n_bytes > 0
    assert turn_of(called) == turn_of(filler) == turn_of(answer)
    assert said_in(answer) == [("item", "It is noon. Anything else?")]
    assert (record["actions"], record["filler"]) == (["filler"], FILLER)
    marks = record["marks"]
    assert marks["tool_called_1"] <= marks["filler_sent"] < marks["first_audible"]
    assert marks["filler_audible"] - marks["voiced_last"] == record["first_audio_ms"] < record["answer_audio_ms"]
    messages = (await server.vendor.llm.nth(1)).question["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]


async def test_phrases_are_spoken_once_for_all_sessions(server: Any) -> None:
    """Their audio is made when the first session begins, and sessions that begin meanwhile wait for it."""
    async with calling(server.base_url, session=VAD), calling(server.base_url, session=VAD) as user:
        await soon((await server.vendor.tts.nth(2)).ended)
        await user.send("response.create")
        await user.until("response.done")
    spoken = [request.question["input"] for request in server.vendor.tts.received]
    assert spoken == [FILLER, "Sorry.", "That went wrong.", "It is noon.", "Anything else?"]


@pytest.mark.parametrize("phrases", [{"filler": "", "apology": ""}])
async def test_a_slow_model_is_spoken_as_far_as_it_has_come(server: Any, question: Samples) -> None:
    """400 ms after its first word the voice gets what there is, up to a whole word."""
    hold = Hold(after=3)
    server.vendor.llm.cue(LlmCue(tokens=tokens("Well the answer is noon."), hold=hold))
    async with calling(server.base_url, session=VAD) as user:
        await user.speak(question)
        shortened = await server.vendor.tts.nth(0)
        assert shortened.question["input"] == "Well the"
        hold.release.set()
        done = await user.until("response.done")
        record = await closed(server, turn_of(done))
    assert said_in(done)[-1][1] == "Well the answer is noon."
    assert record["actions"] == ["short_clause"]
    assert 0 <= record["parts"]["connect"] <= dict(record["marks"])["first_delta"] - record["marks"]["llm_requested"]
    assert [request.question["input"] for request in server.vendor.tts.received] == ["Well the", "answer is noon."]
