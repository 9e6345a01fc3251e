"""A user hangs up: the turn is over at once, its record is stored before the close is answered, and none begins
meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from voicepipe.clock import unix_s
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session import shutdown, snapshot_writer
from voicepipe.session.grant import SessionGrant
from voicepipe.session.ports import SessionPorts, SessionRecords
from voicepipe.session.session import Session, SessionStages
from voicepipe.session.snapshot import SessionSnapshot
from voicepipe.testing.fakes.cues import Hang, LlmCue, SttCue, TtsCue
from voicepipe.testing.fakes.ports import FakeModel, FakeSynthesizer, FakeTranscriber
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn import events as e
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import CoreSettings, ReplySettings


class SlowToClose(FakeTranscriber):
    """Send the vendor a close message, and wait for the answer."""

    def __init__(self) -> None:
        super().__init__(SttCue())
        self.closing, self.closed = asyncio.Event(), asyncio.Event()

    def open(self, options: TranscriptionOptions) -> Any:
        return self._slowly(options)

    @asynccontextmanager
    async def _slowly(self, options: TranscriptionOptions) -> AsyncIterator[Any]:
        async with super().open(options) as transcriber:
            try:
                yield transcriber
            finally:
                self.closing.set()
                await self.closed.wait()


class Leaves:
    """A client that requests an answer, and leaves while the answer is being made."""

    hung_up = True
    gone = False
    has_message = False

    def __init__(self) -> None:
        self._requested, self._made = False, asyncio.Event()
        self.closed = asyncio.Event()

    async def receive(self) -> str | None:
        if self._requested:
            await self._made.wait()
            return None
        self._requested = True
        return '{"type": "response.create"}'

    async def send(self, frame: bytes) -> None:
        if json.loads(frame)["type"] == "response.created":
            self._made.set()

    async def close(self, code: int, reason: str) -> None:
        assert (code, reason) == (1_000, "")
        self.closed.set()

    def abort(self) -> None:
        raise AssertionError("the line was dropped")


async def at_once() -> None:
    """Store all records at once."""


class Records(SessionRecords):
    """Stores the records, and waits with `written`."""

    def __init__(self, stored: list[TurnRecord], written: Callable[[], Awaitable[None]]) -> None:
        self._stored, self._written = stored, written

    def store(self, record: TurnRecord) -> None:
        self._stored.append(record)

    async def wait_until_written(self) -> None:
        await self._written()


def session_of(
    transcriber: FakeTranscriber, records: list[TurnRecord], written: Callable[[], Awaitable[None]] = at_once
) -> Session:
    """Return a session whose answers never come."""
    grant = SessionGrant(
        session_id="sess_x",
        project="p",
        agent="default",
        model="default",
        identity=None,
        config=None,
        expires_at=unix_s() + 600,
    )
    config = SessionConfig.start(
        session_id="sess_x", model="default", voice="v", instructions="Be brief.", expires_at=grant.expires_at
    )
    ports = SessionPorts(records=Records(records, written))
    stages = SessionStages(
        transcriber=transcriber,
        model=FakeModel(LlmCue(fault=Hang())),
        synthesizer=FakeSynthesizer(TtsCue()),
        stt_model="",
        llm_model="",
        tts_model="",
    )
    return Session(grant=grant, config=config, stages=stages, settings=CoreSettings(), ports=ports)


async def test_nothing_starts_after_the_user_left(caplog: pytest.LogCaptureFixture) -> None:
    transcriber, records = SlowToClose(), list[TurnRecord]()
    session = session_of(transcriber, records)
    with caplog.at_level(logging.ERROR):
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
            group.create_task(session.run(Leaves()))
            await transcriber.closing.wait()
            assert [record.outcome for record in records] == ["abandoned"]
            # The clock and the STT go on: the silence of a user who has left is a silence.
            session.post(e.ReplyRequested(None, ReplySettings()))
            transcriber.closed.set()
    assert caplog.records == []
    assert len(records) == 1


async def test_a_client_that_leaves_gets_its_close_frame_once_the_record_is_stored() -> None:
    """Though a stage still closes. A process that is killed behind that frame has lost nothing."""
    transcriber, records, client = SlowToClose(), list[TurnRecord](), Leaves()
    requested, stored = asyncio.Event(), asyncio.Event()

    async def written() -> None:
        assert [record.outcome for record in records] == ["abandoned"]
        requested.set()
        await stored.wait()

    session = session_of(transcriber, records, written)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(session.run(client))
        await requested.wait()
        assert not client.closed.is_set()
        stored.set()
        await client.closed.wait()
        transcriber.closed.set()


async def test_a_database_that_is_away_holds_the_close_frame_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "MAX_RECORDS_WAIT_S", 0)
    transcriber, client = FakeTranscriber(SttCue()), Leaves()

    async def never() -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(WAIT_S):
        await session_of(transcriber, [], never).run(client)
    assert client.closed.is_set()


class LeavesWithResume(Leaves):
    """The same client, in a session that another process could go on with."""

    def __init__(self) -> None:
        super().__init__()
        self._enables = True

    async def receive(self) -> str | None:
        if self._enables:
            self._enables = False
            session = {"type": "realtime", "providerData": {"voicepipe": {"resume": True}}}
            return json.dumps({"type": "session.update", "session": session})
        return await super().receive()


async def test_an_answer_that_is_due_stays_due_for_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session ends here, and its turn with it. But the snapshot is not written again while the close frame waits
    for the record: no answer would be due in the process that goes on."""
    monkeypatch.setattr(snapshot_writer, "SHORT_PAUSE_S", 0)
    monkeypatch.setattr(snapshot_writer, "PAUSE_S", 0)
    written: list[SessionSnapshot] = []

    async def store(snapshot: SessionSnapshot, digest: str, previous_digest: str) -> bool:
        written.append(snapshot)
        return True

    async def records_written() -> None:
        n_before = len(written)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(written) == n_before

    session = session_of(FakeTranscriber(SttCue()), [], records_written)
    session.takeover.share_snapshot(store)
    async with asyncio.timeout(WAIT_S):
        await session.run(LeavesWithResume())
    assert len(written[-1].queued) == 1
