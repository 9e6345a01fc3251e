"""Turn events reach the clients that requested them, in step with the stored record."""

from __future__ import annotations

from typing import Any

from voicepipe.ports.transcriber import Samples
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.testing.records import turn_record
from voicepipe.testing.scenario import Scenario
from voicepipe.testing.user import WireEvent, calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn import notifications as a
from voicepipe.turn.live_updates import changes
from voicepipe.values import replace

QUICK = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
WATCHING = {**QUICK, "providerData": {"voicepipe": {"turn_events": True, "playback_reports": True}}}


def of_kind(events: list[WireEvent], kind: str) -> list[WireEvent]:
    return [event for event in events if event["type"] == f"voicepipe.turn.{kind}"]


async def test_a_page_can_follow_a_turn(server: Any, question: Samples) -> None:
    """Marks and verdicts come while it runs, its record at the end, and they agree."""
    async with calling(server.base_url, session=WATCHING) as user:
        await user.speak(question)
        done = await user.until("response.done")
        (item,) = done["response"]["output"]
        turn_id = done["response"]["metadata"]["voicepipe_turn"]
        await user.send("voicepipe.playback", item_id=item["id"], played_ms=100_000, buffered_ms=0, input_ms=200_000)
        record = (await user.until("voicepipe.turn.record"))["record"]
        events = user.events
    marks = {event["mark"]: event["at_ms"] for event in of_kind(events, "mark")}
    assert marks == record["marks"]
    assert {event["turn_id"] for event in of_kind(events, "mark")} == {turn_id} == {record["id"]}
    verdicts = {event["stage"]: event for event in of_kind(events, "stage")}
    assert {stage: (v["duration_ms"], v["limit_ms"], v["verdict"], v["owner"]) for stage, v in verdicts.items()} == {
        span["stage"]: (span["duration_ms"], span["limit_ms"], span["verdict"], span["owner"])
        for span in record["stages"]
    }
    kinds = [event["type"] for event in events]
    assert kinds.index("voicepipe.turn.mark") < kinds.index("response.created")
    stored = await eventually(lambda: server.closed(turn_id))
    assert {name: stored[name] for name in record} == record


async def test_no_turn_events_without_the_extension(server: Any, question: Samples) -> None:
    async with calling(server.base_url, session=QUICK) as user:
        await user.speak(question)
        await user.until("response.done")
        assert not [kind for kind in user.kinds() if kind.startswith("voicepipe.")]


def test_moved_mark_is_notified_again() -> None:
    """The user pauses, goes on, and pauses again: t0 is the later one."""
    scenario = Scenario(watched=True)
    scenario.speaks()
    scenario.pauses()
    scenario.speaks()
    scenario.pauses()
    voiced = [what.at_ms for what in scenario.notified(a.TurnMarked) if what.mark == "voiced_last"]
    assert len(voiced) == 2
    assert voiced[0] < voiced[1]


def test_each_notification_comes_once() -> None:
    scenario = Scenario(watched=True)
    scenario.utters()
    scenario.answers()
    scenario.passes(5_000)
    (record,) = scenario.driver.records.values()
    notified = [(what.mark, what.at_ms) for what in scenario.notified(a.TurnMarked)]
    assert sorted(notified) == sorted(record.marks)
    spans = [what.span for what in scenario.notified(a.StageJudged)]
    assert sorted(span.stage for span in record.stages) == sorted({span.stage for span in spans})
    assert len(set(spans)) == len(spans)


def test_watching_changes_nothing_else() -> None:
    """The same scenario with and without a subscriber gives the same commands, apart from the turn events."""
    stories = Scenario(watched=True), Scenario()
    for scenario in stories:
        scenario.utters()
        scenario.answers()
        scenario.passes(5_000)
    watched, not_watched = (scenario.driver.commands for scenario in stories)
    live = a.TurnMarked | a.StageJudged | a.ActionTaken
    assert [command for command in watched if not isinstance(getattr(command, "what", None), live)] == not_watched


def test_action_is_notified_when_taken() -> None:
    before = turn_record()
    now = replace(before, actions=(*before.actions, "first clause shortened"))
    assert changes(before, now) == [a.ActionTaken(now.id, now.revision, "first clause shortened")]
    config = SessionConfig.start(session_id="sess_t", model="default", voice="v", instructions="", expires_at=0)
    wire = EventRenderer(config.merged(WATCHING))
    (frame,) = wire.render(changes(before, now)[0])
    assert b'"type":"voicepipe.turn.action"' in frame
