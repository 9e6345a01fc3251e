"""The webhooks of whole sessions: what is stored for them, each event once, and what is deleted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, get_args

import pytest

from tests.docs import PAGES, ROOT, named, rows
from voicepipe.tasks import background_tasks
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.transcript import MAX_TURNS
from voicepipe.telemetry.webhooks.payload import Webhook, WebhookEvent, WebhookKind
from voicepipe.telemetry.webhooks.sender import Webhooks
from voicepipe.telemetry.webhooks.session_events import SessionEvents
from voicepipe.testing.records import turn_record
from voicepipe.turn.record.values import ToolCall
from voicepipe.values import replace

CALL = ToolCall(name="look")
DONE = ToolCall(name="look", took_ms=40, outcome="returned")
SESSION = ("acme", "sess_1")


def sender(*kinds: WebhookKind) -> Webhooks:
    """Webhooks that are never sent."""
    return Webhooks([Webhook(name="crm", url="", secrets=(b"x" * 32,), kinds=kinds, project="acme")])


def events(webhooks: Webhooks) -> list[WebhookEvent]:
    """What waits to be written."""
    return list(webhooks._events)


def turn(id: str = "turn_1", project: str = "acme", **changes: Any) -> StoredTurn:
    """A stored turn of the session."""
    return StoredTurn(replace(turn_record(), id=id, session="sess_1", **changes), project, "default", 1)


async def add_cost(usd: float) -> None:
    """Charge nothing."""


def end(sessions: SessionEvents) -> None:
    """The session ends."""
    sessions.ended(*SESSION, "default", lambda: {"id": "sess_1"}, add_cost)


def test_each_function_call_is_sent_once_it_is_over() -> None:
    """However often the record is renewed."""
    webhooks = sender("tool.called")
    sessions = SessionEvents(webhooks)
    sessions.on_record(turn(tools=(CALL,)))
    assert events(webhooks) == []
    for _ in range(2):
        sessions.on_record(turn(tools=(DONE, CALL)))
    sessions.on_record(turn(tools=(DONE, replace(DONE, outcome="unanswered"))))
    assert [event.data["outcome"] for event in events(webhooks)] == ["returned", "unanswered"]
    assert events(webhooks)[0].data["took_ms"] == 40


def test_a_transcript_has_the_latest_record_of_each_turn() -> None:
    """In the order in which the turns came; the oldest of very many are left out."""
    webhooks = sender("session.ended")
    sessions = SessionEvents(webhooks)
    for n in range(MAX_TURNS + 2):
        sessions.on_record(turn(f"turn_{n}", user_text="early"))
    sessions.on_record(turn("turn_5", user_text="late", played_text="Yes."))
    end(sessions)
    end(sessions)
    data, again = (event.data for event in events(webhooks))
    assert (len(data["transcript"]), data["turns_left_out"]) == (MAX_TURNS, 2)
    assert data["transcript"][3] == data["transcript"][3] | {"id": "turn_5", "user": "late", "agent": "Yes."}
    assert again["transcript"] == []


def test_nothing_is_stored_that_no_webhook_wants() -> None:
    """Nor of another project."""
    webhooks = sender("turn.completed", "session.started")
    sessions = SessionEvents(webhooks)
    sessions.on_record(turn())
    other = SessionEvents(sender("session.ended"))
    other.on_record(turn(project="bank"))
    assert not sessions._sessions
    assert not other._sessions
    sessions.started(*SESSION, lambda: {"id": "sess_1"})
    end(sessions)
    assert [event.kind for event in events(webhooks)] == ["session.started"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_session_that_is_deleted_while_it_is_summarized_is_not_sent(deleted: bool) -> None:
    """The others are, also where the end of the server cuts their summaries."""
    webhooks = sender("session.ended")
    began = asyncio.Event()

    async def summarize(agent: str, session: str, transcript: str) -> tuple[str, float]:
        began.set()
        await asyncio.Event().wait()
        return "never", 0.0

    async with background_tasks() as tasks:
        sessions = SessionEvents(webhooks, tasks)
        sessions.summarize_with(summarize)
        sessions.on_record(turn(user_text="hello"))
        end(sessions)
        await began.wait()
        if deleted:
            await sessions.delete_session(*SESSION)
    assert [event.data["summary"] for event in events(webhooks)] == ([] if deleted else [""])


async def test_a_summary_is_charged_to_its_session() -> None:
    """After its end; a bug in the summary costs the summary."""
    webhooks = sender("session.ended")
    charged: list[float] = []

    async def charge(usd: float) -> None:
        charged.append(usd)

    async def summarize(agent: str, session: str, transcript: str) -> tuple[str, float]:
        if transcript == "User: bug":
            raise ZeroDivisionError
        return f"{agent}: {transcript}", 0.25

    async with background_tasks() as tasks:
        sessions = SessionEvents(webhooks, tasks)
        sessions.summarize_with(summarize)
        for text in ("hello", "bug"):
            sessions.on_record(turn(user_text=text, played_text=""))
            sessions.ended(*SESSION, "default", dict, charge)
            await webhooks._to_write.wait()
            webhooks._to_write.clear()
    assert [event.data["summary"] for event in events(webhooks)] == ["default: User: hello", ""]
    assert charged == [0.25]


def test_the_end_waits_for_records_that_are_still_redacted() -> None:
    """A transcript has the last turn although the session ends before its record is passed on."""
    webhooks = sender("session.ended")
    sessions = SessionEvents(webhooks)
    waiting: list[Callable[[], None]] = []
    sessions.wait_for_records(waiting.append)
    end(sessions)
    assert events(webhooks) == []
    sessions.on_record(turn())
    waiting[0]()
    (sent,) = events(webhooks)
    assert [each["id"] for each in sent.data["transcript"]] == ["turn_1"]


def test_the_page_has_each_field_once() -> None:
    """Of a function call, and of a turn of the transcript."""
    webhooks = sender("tool.called", "session.ended")
    sessions = SessionEvents(webhooks)
    sessions.on_record(turn(tools=(DONE,)))
    end(sessions)
    called, ended = (event.data for event in events(webhooks))
    page = PAGES[ROOT / "web/docs/webhooks.md"]
    table = [row for row in rows(page) if row[0].startswith("`")]
    assert [row[0] for row in table] == [f"`{kind}`" for kind in get_args(WebhookKind)]
    (of_calls,) = (row[2] for row in table if row[0] == "`tool.called`")
    assert called.keys() - {"object"} <= named(of_calls)
    (of_turns,) = re.findall(r"^- `transcript` has .*?(?=^- )", page, re.DOTALL | re.MULTILINE)
    assert ended["transcript"][0].keys() <= named(of_turns)
