"""A user hangs up, and a stage takes its time to close: the turn is over at once, and none begins meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from voicepipe.clock import unix_s
from voicepipe.ports.transcriber import TranscriptionOptions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.grant import SessionGrant
from voicepipe.session.session import Session, SessionHooks, SessionStages
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
        raise AssertionError(f"closed with {code}: {reason}")

    def abort(self) -> None:
        raise AssertionError("the line was dropped")


async def test_nothing_starts_after_the_user_left(caplog: pytest.LogCaptureFixture) -> None:
    transcriber, records = SlowToClose(), list[TurnRecord]()
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
    hooks = SessionHooks(
        keep_record=records.append,
        note_overrun=lambda command: None,
        note_stuck=lambda command: None,
        note_strategy_failure=lambda command: None,
        check_update=lambda before, after: None,
        check_reply=lambda session, reply: None,
        show=lambda session: session,
    )
    stages = SessionStages(
        transcriber=transcriber,
        model=FakeModel(LlmCue(fault=Hang())),
        synthesizer=FakeSynthesizer(TtsCue()),
        stt_model="",
        llm_model="",
        tts_model="",
    )
    session = Session(grant=grant, config=config, stages=stages, settings=CoreSettings(), hooks=hooks)
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
