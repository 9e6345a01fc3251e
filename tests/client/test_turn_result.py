"""From events to an answer: what counts, when it is complete, and what was waited."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from voicepipe.client import Answer
from voicepipe.client import events as e
from voicepipe.client.turn_result import TurnCollector

RATE_HZ = 24_000


def pcm(*, silent_ms: int = 0, loud_ms: int = 100) -> bytes:
    return bytes(2 * silent_ms * RATE_HZ // 1_000) + np.full(loud_ms * RATE_HZ // 1_000, 8_000, "<i2").tobytes()


def collected(*timed: tuple[int, e.ServerEvent], written: bool = False) -> TurnCollector:
    """The events with the position of the user's microphone at each."""
    collector = TurnCollector(written=written)
    for position_ms, event in timed:
        collector.handle(event, position_ms)
    return collector


def answer_of(collector: TurnCollector) -> Answer:
    answer = collector.answer()
    assert answer is not None
    return answer


QUESTION_EVENTS = (
    (500, e.SpeechStarted(450)),
    (2_600, e.SpeechStopped(2_000)),
    (2_700, e.TranscriptionCompleted("What time is it?")),
)
SPOKEN = (
    (2_800, e.ReplyStarted("r1", "turn_1")),
    (2_850, e.ReplyText("r1", "It is noon.")),
    (2_900, e.ReplyAudio("r1", pcm(silent_ms=30))),
)
DONE = (2_950, e.ReplyEnded("r1", "completed", ""))


def test_the_answer_holds_both_sides_and_the_wait_between_them() -> None:
    """From the last voiced sample to the first audible one: silence before it is waited for too."""
    collector = collected(*QUESTION_EVENTS, *SPOKEN, DONE)
    assert collector.complete
    answer = answer_of(collector)
    assert (answer.turn_id, answer.status, answer.why, answer.earlier) == ("turn_1", "completed", "", 0)
    assert (answer.user_text, answer.agent_text) == ("What time is it?", "It is noon.")
    assert (answer.t0_ms, answer.first_output_ms, answer.latency_ms, answer.duration_ms) == (2_000, 2_930, 930, 130)


def test_sound_plays_behind_what_plays_already() -> None:
    """A second piece that came early is played when the first one is over."""
    quiet = (2_900, e.ReplyAudio("r1", pcm(silent_ms=200, loud_ms=0)))
    loud = (2_910, e.ReplyAudio("r1", pcm()))
    assert answer_of(collected(*QUESTION_EVENTS, SPOKEN[0], quiet, loud, DONE)).first_output_ms == 3_100


def test_samples_cut_in_two_by_the_wire_are_joined() -> None:
    whole = pcm()
    pieces = ((2_900, e.ReplyAudio("r1", whole[:7])), (2_901, e.ReplyAudio("r1", whole[7:])))
    answer = answer_of(collected(*QUESTION_EVENTS, SPOKEN[0], *pieces, DONE))
    assert answer.samples.tobytes() == whole


def test_a_written_answer_is_there_with_its_first_text() -> None:
    assert answer_of(collected(*QUESTION_EVENTS, *SPOKEN[:2], DONE, written=True)).latency_ms == 850
    assert answer_of(collected(*QUESTION_EVENTS, *SPOKEN[:2], DONE)).latency_ms is None


def test_nothing_is_complete_before_it_ended() -> None:
    events = (*QUESTION_EVENTS, *SPOKEN, DONE)
    for n_events in range(len(events)):
        assert not collected(*events[:n_events]).complete


def test_continued_speech_gets_another_answer() -> None:
    """The one that was cut stays behind, and what it would still have played is thrown away."""
    again = (
        (3_000, e.SpeechStarted(2_950)),
        (3_010, e.ReplyEnded("r1", "cancelled", "turn_detected")),
    )
    collector = collected(*QUESTION_EVENTS, *SPOKEN[:2], (2_900, e.ReplyAudio("r1", pcm(loud_ms=5_000))), *again)
    assert not collector.complete
    rest = (
        (4_500, e.SpeechStopped(4_000)),
        (4_600, e.TranscriptionCompleted("And the date?")),
        (4_700, e.ReplyStarted("r2", "turn_2")),
        (4_800, e.ReplyAudio("r2", pcm())),
        (4_900, e.ReplyEnded("r2", "completed", "")),
    )
    for position_ms, event in rest:
        collector.handle(event, position_ms)
    assert collector.complete
    answer = answer_of(collector)
    assert (answer.turn_id, answer.earlier, answer.latency_ms) == ("turn_2", 1, 800)
    assert answer.user_text == "What time is it? And the date?"


def test_empty_transcript_gets_no_answer() -> None:
    """A cough after the answer does not keep the user waiting."""
    collector = collected(
        *QUESTION_EVENTS, *SPOKEN, DONE, (5_000, e.SpeechStarted(4_900)), (5_600, e.SpeechStopped(5_000))
    )
    assert not collector.complete
    collector.handle(e.TranscriptionCompleted(" "), 5_700)
    assert collector.complete


def test_a_failed_answer_is_one_and_says_why() -> None:
    collector = collected(*QUESTION_EVENTS, SPOKEN[0], (3_000, e.ReplyEnded("r1", "failed", "fake/llm: broke")))
    assert collector.complete
    answer = answer_of(collector)
    assert (answer.status, answer.why, len(answer.samples)) == ("failed", "fake/llm: broke", 0)


def test_timeout_reports_the_progress() -> None:
    assert collected().progress() == "the server detected no speech"
    assert collected(QUESTION_EVENTS[0]).progress() == "the server detected speech and no end of turn"
    assert collected(*QUESTION_EVENTS).progress() == "the server received the turn and sent no answer"
    assert (
        collected(*QUESTION_EVENTS[:2], (1, e.TranscriptionCompleted(""))).progress()
        == "the server detected speech and no words"
    )
    assert collected(*QUESTION_EVENTS, *SPOKEN).progress() == "an answer began and did not end"
    assert "fake/stt" in collected(*QUESTION_EVENTS[:2], (1, e.TranscriptionFailed("fake/stt: broke"))).progress()
    assert collected((1, e.ServerError("code", "Slow down."))).progress() == "Slow down."
    assert collected().answer() is None


FILLER = f"{e.FILLER}1"
TEXT_DELTA = "response.output_text.delta"


def test_a_filler_is_no_part_of_the_answer_behind_it() -> None:
    """In one response: the latency is that of the answer, and the text has no filler."""
    filler = (
        (2_800, e.ReplyText("r1", "One moment, please.", FILLER)),
        (2_900, e.ReplyAudio("r1", pcm(loud_ms=600), FILLER)),
    )
    answer = (
        (5_000, e.ReplyText("r1", "It is noon.", "item_1")),
        (5_100, e.ReplyAudio("r1", pcm(), "item_1")),
        (5_200, e.ReplyEnded("r1", "completed", "")),
    )
    got = answer_of(collected(*QUESTION_EVENTS, SPOKEN[0], *filler, *answer))
    assert (got.preamble, got.agent_text, got.duration_ms) == ("One moment, please.", "It is noon.", 100)
    assert (got.first_audio_ms, got.latency_ms) == (900, 3_100)


def test_the_turn_goes_on_after_calls_that_the_server_runs() -> None:
    """Also while a filler is said, which is a response of its own."""
    collector = collected(*QUESTION_EVENTS, SPOKEN[0], (2_850, e.ReplyText("r1", "Let me see.", "item_1")))
    for event in (
        e.ReplyAudio("r1", pcm(), "item_1"),
        e.ReplyEnded("r1", "completed", "", goes_on=True),
        e.ReplyStarted("r2", "turn_1"),
        e.ReplyText("r2", "One moment, please.", FILLER),
        e.ReplyEnded("r2", "completed", ""),
    ):
        collector.handle(event, 3_000)
        assert not collector.complete
    assert collector.progress() == "the agent called a function, and no answer to its result came"
    assert collector.answer() is None
    for event in (e.ReplyStarted("r3", "turn_1"), e.ReplyText("r3", "At nine.", "item_2"), e.ReplyAudio("r3", pcm())):
        collector.handle(event, 6_000)
    collector.handle(e.ReplyEnded("r3", "completed", ""), 6_100)
    assert collector.complete
    got = answer_of(collector)
    assert (got.preamble, got.agent_text) == ("Let me see. One moment, please.", "At nine.")
    assert (got.first_audio_ms, got.latency_ms, got.earlier) == (1_000, 4_000, 0)


def test_answers_of_other_turns_are_left_out() -> None:
    """A greeting before the question, and a late answer behind the own one."""
    greeting = ((100, e.ReplyStarted("r0", "turn_0")), (110, e.ReplyText("r0", "Hello.")))
    begun = (120, e.ReplyAudio("r0", pcm()))
    late = ((3_000, e.ReplyStarted("r9", "turn_9")), (3_010, e.ReplyText("r9", "By the way.")))
    audible = (3_020, e.ReplyAudio("r9", pcm()))
    collector = collected(*greeting, begun, *QUESTION_EVENTS, *SPOKEN, DONE, *late, audible)
    assert collector.complete
    answer = answer_of(collector)
    assert (answer.agent_text, answer.earlier, answer.other_text) == ("It is noon.", 0, "Hello. By the way.")
    assert answer_of(collected(*greeting, *QUESTION_EVENTS, *SPOKEN, DONE)).other_text == "", "it was overtaken"


def test_an_answer_plays_behind_the_greeting() -> None:
    """So its latency here is that of the record. The user's voice drops the rest of the greeting."""
    greeting = ((2_500, e.ReplyStarted("r0", "turn_0")), (2_550, e.ReplyAudio("r0", pcm(loud_ms=3_000))))
    typed = TurnCollector(request="turn_1")
    typed.typed(2_500)
    for position_ms, event in (
        *greeting,
        (2_560, e.ReplyEnded("r0", "completed", "")),
        (2_800, e.ReplyStarted("r1", "turn_1", request="turn_1")),
        *SPOKEN[1:],
        DONE,
    ):
        typed.handle(event, position_ms)
    assert answer_of(typed).latency_ms == 2_550 + 3_000 + 30 - 2_500
    early = tuple((position_ms - 2_400, event) for position_ms, event in greeting)
    assert answer_of(collected(*early, *QUESTION_EVENTS, *SPOKEN, DONE)).latency_ms == 930


def test_the_called_functions_are_named() -> None:
    """Those of the replies before the answer too."""
    calls = (e.Called("free_times", "{}", by_server=True),)
    collector = collected(
        *QUESTION_EVENTS,
        SPOKEN[0],
        (2_900, e.ReplyEnded("r1", "completed", "", goes_on=True, calls=calls)),
        (3_000, e.ReplyStarted("r2", "turn_1")),
        (3_100, e.ReplyText("r2", "At nine.")),
        (3_200, e.ReplyEnded("r2", "completed", "", calls=(e.Called("show_map", '{"x": 1}', by_server=False),))),
    )
    assert [call.name for call in answer_of(collector).calls] == ["free_times", "show_map"]


def test_an_unrequested_answer_counts_on_request() -> None:
    """The user who talks over it gets the first answer to a question, not the second."""
    collector = TurnCollector(unrequested=True)
    collector.handle(e.ReplyStarted("r0", "turn_0"), 100)
    collector.handle(e.ReplyText("r0", "Hello."), 110)
    collector.handle(e.ReplyEnded("r0", "cancelled", "turn_detected"), 120)
    assert answer_of(collector).agent_text == "Hello."
    for position_ms, event in (*QUESTION_EVENTS, *SPOKEN, DONE):
        collector.handle(event, position_ms)
    assert (answer_of(collector).agent_text, answer_of(collector).earlier) == ("It is noon.", 0)


def test_a_typed_question_is_answered_by_its_own_request() -> None:
    """Its latency counts from the message."""
    collector = TurnCollector(written=True, request="turn_2")
    collector.typed(1_000)
    for position_ms, event in (
        (1_010, e.ReplyStarted("r0", "turn_a", request="turn_1")),
        (1_020, e.ReplyText("r0", "Hello.")),
        (1_030, e.ReplyEnded("r0", "cancelled", "client_cancelled")),
        (1_040, e.ReplyStarted("r1", "turn_b", request="turn_2")),
        (1_250, e.ReplyText("r1", "It is noon.")),
    ):
        collector.handle(event, position_ms)
        assert not collector.complete
    collector.handle(e.ReplyEnded("r1", "completed", ""), 1_300)
    assert collector.complete
    assert (answer_of(collector).agent_text, answer_of(collector).latency_ms) == ("It is noon.", 250)


def test_events_of_answers_that_never_began_change_nothing() -> None:
    stray = ((1, e.ReplyAudio("x", pcm())), (2, e.ReplyText("x", "?")), (3, e.ReplyEnded("x", "completed", "")))
    collector = collected(*stray)
    assert not collector.complete
    assert collector.answer() is None


def test_an_apology_is_no_answer() -> None:
    """Whether it comes behind a failed one, or while the next is awaited."""
    apology = (
        (3_000, e.ReplyStarted("r2", "turn_2", apologises=True)),
        (3_100, e.ReplyText("r2", "Sorry.")),
        (3_200, e.ReplyAudio("r2", pcm())),
        (3_300, e.ReplyEnded("r2", "completed", "")),
    )
    failed = collected(*QUESTION_EVENTS, SPOKEN[0], (2_950, e.ReplyEnded("r1", "failed", "llm_failed")), *apology)
    assert failed.complete
    assert answer_of(failed).status == "failed"
    assert not collected(*apology, *QUESTION_EVENTS).complete


@dataclass(frozen=True)
class Turn:
    """One way in which a server runs a turn with function calls."""

    n_rounds: int
    runs_here: bool
    """The client runs the functions; else the server does."""

    announced: bool
    """The agent says something before its first call."""

    filler: Literal["none", "before the call", "while it runs", "before the answer"]


TURNS = [
    Turn(n_rounds, runs_here, announced, filler)
    for n_rounds in (1, 2)
    for runs_here in (False, True)
    for announced in (False, True)
    for filler in ("none", "before the call", "while it runs", "before the answer")
]


def fills(response_id: str) -> list[dict[str, Any]]:
    return [{"type": TEXT_DELTA, "response_id": response_id, "item_id": FILLER, "delta": "One moment, please."}]


def started(response_id: str) -> dict[str, Any]:
    response = {"id": response_id, "metadata": {"voicepipe_turn": "turn_1", e.REQUEST: "turn_1"}}
    return {"type": "response.created", "response": response}


def ended(response_id: str, *output: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    return {"type": "response.done", "response": {"id": response_id, "status": status, "output": list(output)}}


def calling(turn: Turn, number: int) -> list[dict[str, Any]]:
    """The response that calls, in the round `number`, and the result of what the server runs."""
    response_id, call_id = f"call_{number}", f"c{number}"
    first = number == 0
    says = turn.announced and first
    words = [{"type": TEXT_DELTA, "response_id": response_id, "item_id": "item_0", "delta": "Let me see."}]
    filler = fills(response_id) if turn.filler == "before the call" and first else []
    output = [{"type": "message", "id": FILLER}] if filler else []
    output += [{"type": "message", "id": "item_0"}] if says else []
    kind = "function_call" if turn.runs_here else "mcp_call"
    called = {"type": "response.function_call_arguments.done", "response_id": response_id, "call_id": call_id}
    called |= {"name": "free_slots", "arguments": "{}"}
    runs = [called] if turn.runs_here else [{"type": "response.mcp_call_arguments.done"}]
    done = ended(response_id, *output, {"type": kind, "name": "free_slots"})
    result = [] if turn.runs_here else [{"type": "response.mcp_call.completed"}]
    filler_reply = [
        started("filler_reply"),
        *fills("filler_reply"),
        ended("filler_reply", {"type": "message", "id": FILLER}),
    ]
    alone = filler_reply if turn.filler == "while it runs" and first else []
    return [started(response_id), *filler, *(words if says else []), *runs, done, *alone, *result]


def wire_of(turn: Turn, *, status: str = "completed") -> list[dict[str, Any]]:
    """All events of such a turn, to the end of its answer."""
    filler = fills("answer") if turn.filler == "before the answer" else []
    words = [{"type": TEXT_DELTA, "response_id": "answer", "item_id": "item_1", "delta": "At nine."}]
    rounds = [event for number in range(turn.n_rounds) for event in calling(turn, number)]
    return [
        *rounds,
        started("answer"),
        *filler,
        *(words if status == "completed" else ()),
        ended("answer", status=status),
    ]


@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_a_turn_ends_with_its_answer_wherever_the_filler_stands(turn: Turn) -> None:
    """In the response that calls, in one of its own, or before the answer; and whoever runs the functions."""
    collector = TurnCollector(written=True, tools=("free_slots",), request="turn_1")
    collector.typed(0)
    for event in wire_of(turn):
        assert not collector.complete
        collector.handle(e.read(json.dumps(event)), 100)
    assert collector.complete
    answer = answer_of(collector)
    said = ["Let me see."] * turn.announced + ["One moment, please."] * (turn.filler != "none")
    assert (answer.agent_text, answer.status) == ("At nine.", "completed")
    assert sorted(answer.preamble.replace(". ", ".|").split("|")) == sorted(said or [""])


@pytest.mark.parametrize("turn", TURNS, ids=str)
def test_an_answer_that_fails_behind_a_filler_is_one_and_says_why(turn: Turn) -> None:
    collector = TurnCollector(written=True, tools=("free_slots",), request="turn_1")
    collector.typed(0)
    *before, done = wire_of(turn, status="failed")
    done["response"]["status_details"] = {"error": {"message": "llm: no output within 10000 ms"}}
    for event in (*before, done):
        assert not collector.complete
        collector.handle(e.read(json.dumps(event)), 100)
    assert collector.complete
    assert (answer_of(collector).status, answer_of(collector).why) == ("failed", "llm: no output within 10000 ms")


def test_a_failed_answer_of_which_only_the_filler_came_says_why() -> None:
    filler = (2_800, e.ReplyText("r1", "One moment, please.", FILLER))
    collector = collected(*QUESTION_EVENTS, SPOKEN[0], filler, (9_000, e.ReplyEnded("r1", "failed", "llm: no output")))
    assert collector.complete
    answer = answer_of(collector)
    assert (answer.preamble, answer.agent_text) == ("One moment, please.", "")
    assert (answer.status, answer.why) == ("failed", "llm: no output")


def test_an_answer_that_fails_after_its_call_says_why() -> None:
    collector = TurnCollector(written=True, tools=("t",), unrequested=True)
    for event in (e.ReplyStarted("r", "turn"), e.FunctionCalled("r", "c", "t", "{}")):
        collector.handle(event, 0)
    collector.handle(e.ReplyEnded("r", "failed", "llm: broke"), 9)
    assert collector.complete
    assert (answer_of(collector).status, answer_of(collector).why) == ("failed", "llm: broke")


def moved_answer(*rest: e.ServerEvent, received: str = "It is", item: str = "i1") -> TurnCollector:
    """An answer whose node dies after two of its words, and what the other node sends."""
    begun = (e.ReplyText("r1", "It is noon.", "i1"), e.ReplyAudio("r1", pcm(loud_ms=100), "i1"))
    collector = collected(*QUESTION_EVENTS, SPOKEN[0], *((2_900, event) for event in begun))
    collector.moved(item, received, is_done=False)
    for event in rest:
        collector.handle(event, 3_900)
    return collector


REST = (
    e.ReplyStarted("r2", "turn_1b"),
    e.ReplyText("r2", "noon.", "i2"),
    e.ReplyAudio("r2", pcm(loud_ms=50), "i2"),
    e.ReplyEnded("r2", "completed", ""),
)
CUT = e.ReplyEnded("r1", "cancelled", "")


@pytest.mark.parametrize("known", [(CUT,), ()], ids=["the other node ends it", "the other node does not know it"])
def test_an_answer_that_another_node_goes_on_with_is_one_answer(known: tuple[e.ServerEvent, ...]) -> None:
    """Its first part does not end the turn; the words and the audio of both parts are the answer, which is as fast as
    its first part."""
    for n_events in range(len(REST)):
        assert not moved_answer(*known, *REST[:n_events]).complete
    collector = moved_answer(*known, *REST)
    assert collector.complete
    answer = answer_of(collector)
    assert (answer.agent_text, answer.status, answer.earlier) == ("It is noon.", "completed", 0)
    assert (answer.duration_ms, answer.latency_ms) == (150, 900)


def test_an_answer_that_another_node_gives_again_is_not_there_twice() -> None:
    """Nothing of it was heard: its item is deleted."""
    again = (REST[0], e.ReplyText("r2", "It is noon.", "i2"), *REST[2:])
    answer = answer_of(moved_answer(CUT, e.ItemDeleted("i1"), *again))
    assert (answer.agent_text, answer.duration_ms) == ("It is noon.", 50)


def test_text_that_another_node_gives_again_is_not_there_twice() -> None:
    """A text answer: the last output that came is of an earlier answer."""
    again = (REST[0], e.ReplyText("r2", "It is noon.", "i2"), REST[3])
    assert answer_of(moved_answer(CUT, *again, item="i0")).agent_text == "It is noon."


def test_an_answer_that_came_whole_has_no_rest() -> None:
    """Only its end did not come before its node died: the other node calls it cancelled."""
    collector = collected(*QUESTION_EVENTS, SPOKEN[0], (2_850, e.ReplyText("r1", "It is noon.", "i1")))
    collector.moved("i1", "It is noon.", is_done=True)
    collector.handle(CUT, 3_000)
    assert collector.complete
    answer = answer_of(collector)
    assert (answer.agent_text, answer.status) == ("It is noon.", "completed")


def test_an_answer_that_was_requested_may_come_from_another_node() -> None:
    """It does not know the client's name of the request."""
    collector = TurnCollector(request="turn_1")
    collector.typed(0)
    collector.moved("", "", is_done=False)
    for event in REST:
        collector.handle(event, 100)
    assert collector.complete
    assert answer_of(collector).agent_text == "noon."
