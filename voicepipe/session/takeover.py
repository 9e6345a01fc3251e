"""Share a session's snapshot with other processes, and go on with a session that another process had."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from voicepipe.clock import SessionClock
from voicepipe.protocol import inbound
from voicepipe.protocol.extensions import Resume
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.connection import SessionConnection
from voicepipe.session.context import NextAgent
from voicepipe.session.drain import SessionDrain
from voicepipe.session.resumption import Resumption
from voicepipe.session.shutdown import EndingRequests
from voicepipe.session.snapshot import SessionSnapshot
from voicepipe.session.snapshot_writer import SnapshotWrite, SnapshotWriter, StoreSnapshot, TakeRecord
from voicepipe.turn import events as e
from voicepipe.turn.core import Core


class Takeover:
    """The takeover of one session: by another process, or from one."""

    def __init__(
        self,
        writer: SnapshotWriter,
        resumption: Resumption,
        wire: EventRenderer,
        audio_input: AudioInput,
        core: Core,
        requests: EndingRequests,
        config: SessionConfig,
        clock: SessionClock,
        *,
        post: Callable[[e.Event], None],
        put: Callable[[Frames], None],
        configure: Callable[[SessionConfig], None],
        store_record: TakeRecord,
        restore_record: TakeRecord,
        hand_over: Callable[[str], NextAgent | None],
    ) -> None:
        """`config`: the session as it begins here; `configure` applies it with the settings that it had in the other
        process. `store_record` stores the record of a turn that the other process has not closed, `restore_record`
        that of one that it has. `hand_over` returns another agent."""
        self._writer, self._resumption, self._wire = writer, resumption, wire
        self._audio_input, self._core, self._config, self._clock = audio_input, core, config, clock
        self._post, self._put, self._configure = post, put, configure
        self._store_record, self._restore_record, self._hand_over = store_record, restore_record, hand_over
        self._drain = SessionDrain(writer, resumption, wire, put, core, requests)

    # --- by another process -------------------------------------------------------------------

    def share_snapshot(self, store: StoreSnapshot) -> None:
        """Have snapshots written, so that another process can go on with the session. Call before it runs."""
        self._writer.store = store
        self._wire.times_words = True

    async def run(self) -> None:
        """Write the snapshot until cancelled, or until another process has the session: then it ends here."""
        await self._writer.run(self._snapshot, self._drain.moved)

    def close(self) -> None:
        """Write no more: what is due stays due in the store, for the process that goes on with the session."""
        self._writer.close()

    def drain(self, within_ms: int, *, at_once: bool) -> bool:
        """Have the client resume at another node; see `SessionDrain.begin`."""
        return self._drain.begin(within_ms, at_once=at_once)

    def _snapshot(self) -> SnapshotWrite | None:
        digests, received_ms, now_ms = self._resumption.digests, self._audio_input.received_ms, self._clock.now_ms()
        return None if digests is None else (self._writer.state(self._core, received_ms, now_ms), *digests)

    # --- from another process -----------------------------------------------------------------

    def restore(self, state: SessionSnapshot, request: Resume, secret: str) -> None:
        """Take over what another process has written, for the client that sent `request`. Call before the session runs.
        `secret`: the session's next one, which the store has.

        Raises:
            ProtocolError, ValueError: as `SnapshotWriter.restore`.
        """
        self._resumption.restore(request, secret)
        self._config = self._writer.restore(state, request, self._config, self._wire, self._hand_over)
        self._configure(self._config)
        self._audio_input.go_on(state.input_received_ms)

    def go_on(self, connection: SessionConnection) -> None:
        """Take the conversation over, end the open response, and speak or generate what the user has not heard."""
        connection.allow_resume(True)
        reply = self._core.context.settings.reply
        events = self._writer.events(reply, self._read)
        n_answers = sum(isinstance(event, e.ReplyRestored) for event in events)
        hello = self._resumption.take_over(n_answers=n_answers)
        self._put([hello])
        self._put(self._writer.end_of_response(self._wire, reply))
        for event in events:
            self._post(event)
        self._writer.store_unstored_records(
            events, self._core, self._clock.now_ms(), self._store_record, self._restore_record
        )

    def _read(self, raw: msgspec.Raw) -> object:
        """Return an event that the client names when it resumes, as the core gets it."""
        what = inbound.read(bytes(raw), self._config)
        return what.request if isinstance(what, inbound.PartlyServed) else what
