"""Write the snapshot of a session whenever it has changed, off the critical path; the latest state wins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from voicepipe import clock
from voicepipe.errors import Overload
from voicepipe.protocol.extensions import Resume
from voicepipe.protocol.ga import GA
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_update import is_published
from voicepipe.session.context import NextAgent
from voicepipe.session.pending_replies import Sent, takeover_events
from voicepipe.session.snapshot import (
    AgentChanged,
    ItemCodec,
    SessionSnapshot,
    SettingsChange,
    SettingsSent,
    VariablesSet,
    read_items,
    snapshot_of,
)
from voicepipe.session.unstored_records import ClosedRecords, unstored_records
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.log import log_event
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.core import Core
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.settings import ReplySettings
from voicepipe.turn.states import UserState

PAUSE_S: Final = 0.2
"""Time between two writes while a reply grows: what changes meanwhile is written once."""

SHORT_PAUSE_S: Final = 0.02
"""Shortest time between two writes: an item or a response that begins or ends is written at once."""

RENEW_S: Final = 30.0
"""Longest time between two writes: the snapshot of a process that died expires."""

RETRY_S: Final = 1.0
"""Pause before a write that the store refused is tried again."""

MAX_WRITE_WAIT_S: Final = 0.5
"""Longest time for which an answer waits for the write of its question. The write goes on
(`cluster.store_calls.SNAPSHOT_MS`), and no later answer waits before one has succeeded."""

MAX_SECRET_WAIT_S: Final = 2.0
"""Longest time for which a resume secret waits likewise, and with it the beginning of a session: without a snapshot
the secret is of no use when the node dies. A store that is away fails at once."""

INPUTS: Final = (a.ItemAdded, a.ItemDeleted, a.ItemTruncated, a.TranscriptDone)
"""Notifications of what an answer depends on: it leaves when the store has that. Otherwise a node that goes on with the
session would not have the question of an answer that the user has begun to hear."""

CHANGES: Final = (
    a.ItemAdded,
    a.ItemDeleted,
    a.ItemTruncated,
    a.TranscriptDone,
    a.OutputStarted,
    a.ToolEnded,
    a.ResponseStarted,
    a.ResponseEnded,
)
"""Notifications after which the snapshot is written."""

PROGRESS: Final = (e.ClauseHandedOver, e.SoundArrived, e.SynthesisFinished)
"""Events of a reply after which the snapshot is written."""


StoreSnapshot = Callable[[SessionSnapshot, str, str], Awaitable[bool]]
"""Writes a session's snapshot, with the digests of its resume secret and of the one before, if that is still valid.
False: another process has the session."""

TakeRecord = Callable[[TurnRecord], None]

SnapshotWrite = tuple[SessionSnapshot, str, str]
"""What `StoreSnapshot` writes."""


class SnapshotWriter:
    """The snapshot of one session: written whenever it has changed, and restored in another process."""

    def __init__(self) -> None:
        self._changed, self._is_urgent, self._is_awaited = AsyncEvent(), AsyncEvent(), AsyncEvent()
        self._output_released = AsyncEvent()
        """Set while no output has to wait for a write."""

        self._output_released.set()
        self._n_inputs = 0
        self._has_secret = False
        """Whether a resume secret waits for a write."""

        self._can_wait = True
        """Whether output waits for a write: not where the latest has failed, or the session can't be resumed."""

        self._codec = ItemCodec()
        self._records = ClosedRecords()
        self._changes: list[SettingsChange] = []  # bounded by MAX_BYTES: beyond it the session is not written
        self._input_received_ms = 0
        self._request: Resume | None = None
        self.renew_s = RENEW_S
        self.on_written: Callable[[], None] | None = None
        """Called when the store has the latest snapshot."""

        self.has_moved = False
        """Whether another process has the session: the records of its open turns are that one's."""

        self._is_closed = False
        self.store: StoreSnapshot | None = None
        """None: no other process could read it."""

        self.restored: SessionSnapshot | None = None
        """The state that another process has written; None: the session began here."""

        self.agent: NextAgent | None = None
        """The agent to which another process handed the call over."""

        self.has_variables = False
        """Whether the hook at the beginning of the session has returned in another process."""

    # --- writing ----------------------------------------------------------------------------

    def schedule(self, *, soon: bool = True) -> None:
        """Have the snapshot written; returns at once. `soon`: it can't wait for `PAUSE_S`."""
        self._changed.set()
        if soon:
            self._is_urgent.set()

    def write_secret(self) -> None:
        """Have a new resume secret written, and have the frame that gives it to the client wait for that: a node that
        died in between would leave a client whose secret no node has."""
        if self.store is not None:
            self.schedule()
            self._n_inputs += 1
            self._has_secret = True
            self._output_released.clear()

    def add_update(self, update: Any) -> None:
        """Add a `session.update` that was accepted."""
        if self.store is not None:
            self.add_change(SettingsSent(msgspec.Raw(msgspec.json.encode(update))))

    def add_change(self, change: SettingsChange) -> None:
        """Add a change of the session's settings: another process applies all of them again, in their order."""
        if self.store is not None:
            self._changes.append(change)
            self.schedule()

    def on_event(self, event: e.Event, commands: tuple[c.Command, ...]) -> None:
        """Have the snapshot written if the event has changed it."""
        is_change = any(map(_changes_snapshot, commands))
        self._records.add(commands)
        if self.store is not None and (is_change or isinstance(event, PROGRESS)):
            self.schedule(soon=is_change)
            if any(map(_is_input, commands)):
                self._n_inputs += 1
                if self._can_wait:
                    self._output_released.clear()

    def pending_write(self) -> Awaitable[None] | None:
        """Return the write that output must wait for, since the store lacks what it answers; None: there is none, the
        latest write has failed, or the session can't be resumed.

        Output waits at most `MAX_WRITE_WAIT_S`, and a secret `MAX_SECRET_WAIT_S`. A function with side effects waits
        too: the store lacks its call."""
        return None if self._output_released.is_set() else self._wait_until_written()

    async def _wait_until_written(self) -> None:
        self._is_awaited.set()
        self._is_urgent.set()
        try:
            async with asyncio.timeout(MAX_SECRET_WAIT_S if self._has_secret else MAX_WRITE_WAIT_S):
                await self._output_released.wait()
        except TimeoutError:
            self._can_wait = False
            self._output_released.set()
        self._has_secret = False

    def state(self, core: Core, input_received_ms: int, now_ms: int) -> SessionSnapshot:
        """Return the state as it is now. While the user speaks, those words are no item yet."""
        if core.user.state is UserState.QUIET and not core.user.utterances.pending:
            self._input_received_ms = input_received_ms
        generation = 0 if self.restored is None else self.restored.generation + 1
        return snapshot_of(
            core,
            self._codec,
            now_ms,
            closed_records=self._records.latest(),
            began_unix_ms=clock.unix_ms() - now_ms,
            changes=tuple(self._changes),
            generation=generation,
            input_received_ms=self._input_received_ms,
        )

    def close(self) -> None:
        """Write no more. The session ends here, which closes its turns as abandoned: for another process that goes on
        with it, they are as the latest snapshot has them."""
        self._is_closed = True

    async def run(self, snapshot: Callable[[], SnapshotWrite | None], on_moved: Callable[[], None]) -> None:
        """Write the snapshot until cancelled, or until another process has the session.

        `snapshot` returns what is to be written; None: the session can't be resumed now. `on_moved` is called when
        another process has the session.
        """
        while self.store is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.renew_s):
                    await self._changed.wait()
            if self._is_closed:
                return
            self._changed.clear()
            self._is_urgent.clear()
            self._is_awaited.clear()
            n_inputs, found = self._n_inputs, snapshot()
            try:
                if found is not None and not await self.store(*found):
                    log_event("session_moved", level=logging.WARNING)
                    self.has_moved = True
                    on_moved()
                    return
                self._can_wait = found is not None
                if n_inputs == self._n_inputs or found is None:
                    self._output_released.set()
                if self.on_written is not None and not self._changed.is_set():
                    self.on_written()
            except Overload:  # the failing store is logged once, for all sessions
                self._can_wait = False
                self._output_released.set()
                self._changed.set()
                await asyncio.sleep(RETRY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(SHORT_PAUSE_S):
                    await self._is_awaited.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S - SHORT_PAUSE_S):
                    await self._is_urgent.wait()

    # --- restoring --------------------------------------------------------------------------

    def restore(
        self,
        state: SessionSnapshot,
        request: Resume,
        config: SessionConfig,
        wire: EventRenderer,
        hand_over: Callable[[str], NextAgent | None] | None = None,
    ) -> SessionConfig:
        """Take a state over, and return the session with the settings that it had. `hand_over` returns another agent.

        Raises:
            ProtocolError: a setting is not known here.
            ValueError: an agent is not; or as `read_items`.
        """
        read_items(state)
        self.restored = state
        self._changes = list(state.changes)
        self._input_received_ms = state.input_received_ms
        self._request = request
        wire.go_on(state.generation + 1)
        for change in state.changes:
            match change:
                case SettingsSent(raw):
                    update = msgspec.json.decode(raw)
                    config = config.merged(update)
                    if is_published(update):
                        wire.speak(GA)
                case VariablesSet(values):
                    config, self.has_variables = config.with_variables(values), True
                case AgentChanged(name):
                    self.agent = _agent(name, hand_over)
                    config = config.handed_over(self.agent.config)
        return config

    def end_of_response(self, wire: EventRenderer, reply: ReplySettings) -> Frames:
        """Return the end of the response that the other process had begun and not ended."""
        state = self.restored
        if state is None:
            return []
        begun = [] if state.reply is None else [(state.reply.response_id, state.turn)]
        responses = [*begun, *((each.response_id, each.turn) for each in state.queued)]
        frames = [wire.ended_elsewhere(id, reply, "" if turn is None else turn.id) for id, turn in responses if id]
        return [frame for each in frames for frame in each]

    def events(self, reply: ReplySettings, read: Callable[[msgspec.Raw], object]) -> tuple[e.Event, ...]:
        """Return the events that make a new core go on. `reply`: the settings of a reply of this session. `read`
        returns an event of the client's as the core gets it.

        Raises:
            ValueError: as `read_items`.
        """
        assert self.restored is not None
        sent = () if self._request is None else tuple(map(read, self._request.sent))
        kinds = (e.ItemCreateRequested, e.ReplyRequested)
        named: Sent = tuple(each for each in sent if isinstance(each, kinds))
        return takeover_events(self.restored, self._request, reply, named)

    def store_unstored_records(
        self, events: tuple[e.Event, ...], core: Core, now_ms: int, store: TakeRecord, restore: TakeRecord
    ) -> None:
        """Have the records stored that the other process has left, where these events go on, and the snapshot written.

        `store` gets those of turns that no process has closed, `restore` the others.
        """
        assert self.restored is not None
        left = unstored_records(self.restored, self._request, events, core.context, clock.unix_ms() - now_ms)
        for take, records in ((store, left.open), (restore, left.closed)):
            for record in records:
                take(record)
        self.schedule()


def _agent(name: str, hand_over: Callable[[str], NextAgent | None] | None) -> NextAgent:
    agent = None if hand_over is None else hand_over(name)
    if agent is None:
        raise ValueError(f"expected an agent that this server has, got {name!r}")
    return agent


def _is_input(command: c.Command) -> bool:
    return isinstance(command, c.RunTool) or (isinstance(command, c.Notify) and isinstance(command.what, INPUTS))


def _changes_snapshot(command: c.Command) -> bool:
    match command:
        case c.Notify(what):
            return isinstance(what, CHANGES)
        case c.StoreRecord() | c.StartReply() | c.RunTool():
            return True
        case _:
            return False
