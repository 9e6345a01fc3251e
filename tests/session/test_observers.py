"""Telemetry, records and a vendor's counts can't end a session."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, NoReturn

import pytest

from tests.session.test_third_party_faults import Client
from voicepipe.audio.samples import Samples
from voicepipe.clock import unix_s
from voicepipe.errors import StageRefused
from voicepipe.ports.model import Usage
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.grant import SessionGrant
from voicepipe.session.ports import LiveTurns, SessionObserver, SessionPorts, SessionRecords
from voicepipe.session.session import Session, SessionStages
from voicepipe.telemetry.stall_log import StallLog
from voicepipe.testing.fakes.cues import LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.fakes.ports import FakeModel, FakeSynthesizer, FakeTranscriber
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.commands import ReportOverrun, ReportStuck
from voicepipe.turn.events import Event, EventLoopStalled
from voicepipe.turn.notifications import Notification
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import CoreSettings
from voicepipe.values import replace

WORDS = "HTTP 429: rate limit (org-acme-7731 has used its quota, key sk-se...0123)"


def broken(*_: Any) -> NoReturn:
    raise ValueError("an observer broke")


class BrokenJournal:
    """Fails at each call."""

    record = user_audio = agent_audio = close = broken


class Watched:
    """Subscribers follow the turns."""

    is_watched = True


class BrokenRecords(SessionRecords):
    def store(self, record: TurnRecord) -> None:
        broken()


class BrokenObserver(SessionObserver):
    def overran(self, command: ReportOverrun) -> None:
        broken()

    def was_stuck(self, command: ReportStuck) -> None:
        broken()


class BrokenLiveTurns(LiveTurns):
    def publish(self, what: Notification) -> None:
        broken()


class RecordList(SessionRecords):
    """Stores the records in a list."""

    def __init__(self) -> None:
        self.records: list[TurnRecord] = []

    def store(self, record: TurnRecord) -> None:
        self.records.append(record)


def session(model: FakeModel, ports: SessionPorts, *, redacted: bool = False, **changes: Any) -> Session:
    """One user's, with a model of the test's; `changes` replace other stages."""
    grant = SessionGrant(
        session_id="sess_x",
        project="p",
        agent="default",
        model="default",
        identity=None,
        config=None,
        expires_at=unix_s() + 600,
        redacted=redacted,
    )
    config = SessionConfig.start(
        session_id="sess_x", model="default", voice="v", instructions="Be brief.", expires_at=grant.expires_at
    )
    stages = SessionStages(
        transcriber=FakeTranscriber(SttCue()),
        model=model,
        synthesizer=FakeSynthesizer(TtsCue()),
        stt_model="",
        llm_model="",
        tts_model="",
    )
    return Session(grant=grant, config=config, stages=replace(stages, **changes), settings=CoreSettings(), ports=ports)


class RequestingClient(Client):
    """Request once, and store everything that the server sends."""

    def __init__(self, *, answers: int = 1, record: bool = False) -> None:
        ready = asyncio.Event()
        ready.set()
        super().__init__(ready)
        self.received: list[dict[str, Any]] = []
        self._first = [] if not record else [{"providerData": {"voicepipe": {"turn_events": True}}}]

    async def receive(self) -> str | None:
        if self._first:
            return json.dumps({"type": "session.update", "session": {"type": "realtime", **self._first.pop()}})
        return await super().receive()

    async def send(self, frame: bytes) -> None:
        self.received.append(json.loads(frame))
        await super().send(frame)


async def talk(made: Session, client: Client) -> None:
    async with asyncio.timeout(WAIT_S):
        await made.run(client)


def noon() -> FakeModel:
    return FakeModel(LlmCue(tokens=tokens("It is noon.")))


BROKEN: dict[str, Any] = {
    "records": BrokenRecords(),
    "observer": BrokenObserver(),
    "live": BrokenLiveTurns(Watched()),
    "open_journal": lambda opening: BrokenJournal(),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_observer_that_breaks_ends_no_session(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The user is answered, no connection is closed, and the log has the error."""
    caplog.set_level(logging.ERROR)
    client = RequestingClient(record=True)
    await talk(session(noon(), SessionPorts(**{name: BROKEN[name]})), client)
    assert client.answers == ["completed"]
    crashes = [record.getMessage() for record in caplog.records].count("crashed")
    if name in ("records", "live"):
        assert crashes >= 1
    elif name == "open_journal":
        assert crashes == 1, "one that breaks is left out from then on"


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tokens=-5_000_000, output_tokens=-5_000_000),
        Usage(input_tokens=10**30, output_tokens=10**30),
        Usage(input_tokens=1, output_tokens=1, cached_tokens=10**9),
        Usage(input_tokens="many", output_tokens=None),  # type: ignore[arg-type]
    ],
    ids=["negative", "huge", "cached", "text"],
)
async def test_impossible_counts_of_a_third_partys_model_are_ignored(usage: Usage) -> None:
    """Whatever it reports; the tokens are reckoned from the text."""
    stored, model, client = RecordList(), FakeModel(), RequestingClient()
    made = session(model, SessionPorts(records=stored))
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(made.run(client))
        await model.script.nth(0)
        request = model.script.received[0]
        request.send("It is noon.", usage)
        request.finish()
    assert client.answers == ["completed"]
    done = next(event for event in client.received if event["type"] == "response.done")
    assert (done["response"]["usage"] or {}).get("input_tokens", 0) == 0
    assert stored.records[-1].tokens.input == stored.records[-1].tokens.output == 0
    assert stored.records[-1].cost.usd >= 0


class EventsJournal:
    """The events that the core handles, by name."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, now_ms: int, event: Event, commands: object) -> None:
        self.events.append(event)

    def user_audio(self, samples: Samples, rate_hz: int) -> None:
        """Ignore it."""

    agent_audio = user_audio

    def close(self) -> None:
        """Nothing is open."""


async def test_stalls_reach_the_core_before_the_next_event() -> None:
    """In time order, each once, and only those since the session began; alone they cause no work."""
    journal, stalls, client, model = EventsJournal(), StallLog(), RequestingClient(), FakeModel()
    stalls.record(1, 2)
    made = session(model, SessionPorts(stalls=stalls, open_journal=lambda opening: journal))
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(made.run(client))
        await model.script.nth(0)
        n_before = len(journal.events)
        stalls.record(10_000_000_000, 10_000_000_030)
        stalls.record(10_000_000_040, 10_000_000_070)
        assert len(journal.events) == n_before
        model.script.received[0].send("It is noon.")
        model.script.received[0].finish()
    noted = [event for event in journal.events if isinstance(event, EventLoopStalled)]
    assert journal.events[n_before : n_before + 2] == noted
    assert [stall.until_ms - stall.from_ms for stall in noted] == [30, 30]
    assert noted[1].from_ms - noted[0].from_ms == 40


@pytest.mark.parametrize("redacted", [True, False])
async def test_provider_errors_are_sent_to_api_keys_only(redacted: bool) -> None:
    """In the events of a call: not in the response that failed, nor in the turn's record."""
    model, client = FakeModel(), RequestingClient(record=True)
    stored = RecordList()
    made = session(model, SessionPorts(records=stored), redacted=redacted)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(made.run(client))
        await model.script.nth(0)
        refusal = StageRefused("llm", provider="mind/m", why=WORDS, retryable=False, status=429)
        model.script.received[0].fail(refusal)
    received = json.dumps(client.received)
    done = next(event for event in client.received if event["type"] == "response.done")["response"]
    assert done["status_details"]["error"]["code"] == "llm_failed"
    assert ("org-acme-7731" in received) is not redacted
    assert "org-acme-7731" in stored.records[-1].reason, "the operator's record has them"
    assert not redacted or done["status_details"]["error"]["message"] == "llm: it failed"
