"""Turns as they run: told to those who asked, in step with the record that is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.writer import Wire
from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import Event, calling
from voicepipe.testing.records import turn_record
from voicepipe.testing.story import Story
from voicepipe.testing.waiting import eventually
from voicepipe.turn import announcements as a
from voicepipe.turn.live import news

QUICK = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
WATCHING = {**QUICK, "providerData": {"voicepipe": {"turn_events": True, "playback_reports": True}}}


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["type"] == f"voicepipe.turn.{kind}"]


async def test_a_page_can_follow_a_turn(house: Any, question: Samples) -> None:
    """Marks and verdicts come while it runs, its record at the end, and they agree."""
    async with calling(house.base_url, session=WATCHING) as caller:
        await caller.say(question)
        done = await caller.until("response.done")
        (item,) = done["response"]["output"]
        turn_id = done["response"]["metadata"]["voicepipe_turn"]
        await caller.send("voicepipe.playback", item_id=item["id"], played_ms=100_000, buffered_ms=0, input_ms=200_000)
        record = (await caller.until("voicepipe.turn.record"))["record"]
        events = caller.events
    marks = {event["mark"]: event["at_ms"] for event in of_kind(events, "mark")}
    assert marks == record["marks"]
    assert {event["turn_id"] for event in of_kind(events, "mark")} == {turn_id} == {record["id"]}
    verdicts = {event["stage"]: event for event in of_kind(events, "verdict")}
    assert {stage: (v["duration_ms"], v["limit_ms"], v["verdict"], v["owner"]) for stage, v in verdicts.items()} == {
        span["stage"]: (span["duration_ms"], span["limit_ms"], span["verdict"], span["owner"])
        for span in record["stages"]
    }
    kinds = [event["type"] for event in events]
    assert kinds.index("voicepipe.turn.mark") < kinds.index("response.created")
    kept = await eventually(lambda: house.closed(turn_id))
    assert {name: kept[name] for name in record} == record


async def test_who_did_not_ask_is_told_nothing(house: Any, question: Samples) -> None:
    async with calling(house.base_url, session=QUICK) as caller:
        await caller.say(question)
        await caller.until("response.done")
        assert not [kind for kind in caller.kinds() if kind.startswith("voicepipe.")]


def test_a_mark_that_moves_is_told_again() -> None:
    """The caller pauses, goes on, and pauses again: t0 is the later one."""
    story = Story(watched=True)
    story.speaks()
    story.pauses()
    story.speaks()
    story.pauses()
    voiced = [what.at_ms for what in story.said(a.TurnMarked) if what.mark == "voiced_last"]
    assert len(voiced) == 2
    assert voiced[0] < voiced[1]


def test_each_thing_is_told_once() -> None:
    story = Story(watched=True)
    story.says()
    story.answers()
    story.passes(5_000)
    (record,) = story.book.records.values()
    told = [(what.mark, what.at_ms) for what in story.said(a.TurnMarked)]
    assert sorted(told) == sorted(record.marks)
    spans = [what.span for what in story.said(a.StageJudged)]
    assert sorted(span.stage for span in record.stages) == sorted({span.stage for span in spans})
    assert len(set(spans)) == len(spans)


def test_watching_changes_nothing_else() -> None:
    """The same story, watched and not: but for what is told, the same orders."""
    stories = Story(watched=True), Story()
    for story in stories:
        story.says()
        story.answers()
        story.passes(5_000)
    watched, not_watched = (story.book.orders for story in stories)
    live = a.TurnMarked | a.StageJudged | a.ActionTaken
    assert [order for order in watched if not isinstance(getattr(order, "what", None), live)] == not_watched


def test_an_action_is_told_when_it_is_taken() -> None:
    before = turn_record()
    now = replace(before, actions=(*before.actions, "first clause shortened"))
    assert news(before, now) == [a.ActionTaken(now.id, now.revision, "first clause shortened")]
    config = SessionConfig.start(session_id="sess_t", model="default", voice="v", instructions="", expires_at=0)
    wire = Wire(config.merged(WATCHING))
    (frame,) = wire.announce(news(before, now)[0])
    assert b'"type":"voicepipe.turn.action"' in frame
