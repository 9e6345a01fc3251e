"""One session: owns the core, the audio input, the replies, the outbox, and all of their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from voicepipe import clock
from voicepipe.errors import ProtocolError
from voicepipe.freeing import FreeingTaskGroup, held_weakly
from voicepipe.protocol import inbound
from voicepipe.protocol.beta import BETA
from voicepipe.protocol.ga import GA
from voicepipe.protocol.outbound import EventRenderer, Frames
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.protocol.session_update import is_published
from voicepipe.session.active_agent import ActiveAgent
from voicepipe.session.audio_input import MAX_BYTES_AT_ONCE
from voicepipe.session.connection import SessionConnection
from voicepipe.session.context import Greeting as Greeting
from voicepipe.session.context import NextAgent
from voicepipe.session.context import SessionStages as SessionStages
from voicepipe.session.event_loop_stalls import EventLoopStalls
from voicepipe.session.grant import SessionGrant
from voicepipe.session.greeting import GREETING_WAIT_S, Greeter
from voicepipe.session.item_audio import RetrievedAudio
from voicepipe.session.live_updates import TurnObserver
from voicepipe.session.mcp import SessionMcp
from voicepipe.session.outbox import MAX_UNSENT_BYTES, Outbox, OutgoingFrame
from voicepipe.session.ports import SessionHooks, SessionPorts
from voicepipe.session.read_limit import UPDATE_EVENTS, ReadLimit
from voicepipe.session.recorded_call import recorded_call
from voicepipe.session.resumption import Resumption
from voicepipe.session.server_tools import SessionTools, session_of
from voicepipe.session.shutdown import (
    INTERNAL_ERROR,
    NORMAL,
    Ending,
    EndingRequests,
    answer_close,
    end_on_request,
    expired,
)
from voicepipe.session.sides import Answering, SharedParts, UserInput
from voicepipe.session.snapshot import AgentChanged, VariablesSet
from voicepipe.session.snapshot_writer import SnapshotWriter
from voicepipe.session.socket import ClientSocket
from voicepipe.session.takeover import Takeover
from voicepipe.session.unserved_fields import UnservedFields
from voicepipe.session.wake_timer import WakeTimer
from voicepipe.tasks import AsyncEvent
from voicepipe.telemetry.isolation import IsolatedJournal
from voicepipe.telemetry.journal.port import NO_JOURNAL, Journal
from voicepipe.telemetry.log import log_crash
from voicepipe.telemetry.record_json import record_plain
from voicepipe.turn import commands as c
from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.conversation_limits import orphan
from voicepipe.turn.core import Core, EventQueue
from voicepipe.turn.journal import Opening
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.redaction import redacted_notification, redacted_record
from voicepipe.turn.settings import CoreSettings
from voicepipe.turn.states import UserState
from voicepipe.values import replace

_Report = TypeVar("_Report")


class _ConnectionClosed(Exception):
    """Raised when the client is gone; ends the session's tasks."""


class Session:
    """One user's session. `run` it once, with the client's socket."""

    def __init__(
        self,
        *,
        grant: SessionGrant,
        config: SessionConfig,
        stages: SessionStages,
        settings: CoreSettings,
        ports: SessionPorts,
        greeting: Greeting | None = None,
    ) -> None:
        """`greeting`: the agent speaks first; None: the user does."""
        self.grant, self._config, self._ports = grant, config, ports
        self._clock = clock.SessionClock()
        self._wire = EventRenderer(ports.client.visible(config), dialect=BETA if grant.dialect == "beta" else GA)
        self._events = EventQueue()
        post = self._events.post
        self._writer = SnapshotWriter()
        self._outbox = Outbox(held_weakly(self._on_sent), held_weakly(self._on_full), self._writer.pending_write)
        self._read_limit = ReadLimit()
        self._core, self._journal = _core_and_journal(grant, config, stages, settings, ports)
        self._recorded = recorded_call(ports.recording, self._clock, speaks=config.kind == "realtime")
        self._greeter = Greeter(greeting, self._recorded, post, waits_for_hook=ports.hooks is not None)
        self.items = ports.items
        self._retrieved_audio = RetrievedAudio(self.items, self._wire, self._read_limit)
        shared = SharedParts(
            grant=grant,
            config=config,
            stages=stages,
            ports=ports,
            clock=self._clock,
            core=self._core,
            wire=self._wire,
            outbox=self._outbox,
            journal=self._journal,
            recorder=None if self._recorded is None else self._recorded.recorder,
            post=post,
        )
        speech = shared.speech_session()
        self._listening = UserInput.of(shared, speech)
        self._answering = Answering.of(shared, speech, self._listening)
        # Held here too, for the commands and the audio of each frame.
        self._audio_input, self._scoring = self._listening.audio_input, self._listening.scoring
        self._prompt_builder, self._replies = self._answering.prompt_builder, self._answering.replies
        self._tools = self._session_tools(stages)
        self._mcp = SessionMcp(ports.open_mcp, self._wire, held_weakly(self._put), post, held_weakly(self._renew_tools))
        users = self._answering.stage_users(self._listening)
        self._agent = ActiveAgent(grant.agent, stages, users, self._tools, self._mcp)
        self.resumption = Resumption(self._wire, self._audio_input, post)
        self._ending_requests = EndingRequests()
        self.takeover = self._new_takeover()
        self._turn_observer = TurnObserver(self._core, ports.live)
        self._subscribers, self._stall_log = ports.live.subscribers, ports.stalls
        self._group: asyncio.TaskGroup | None = None
        self._wake = WakeTimer(self._clock, post)
        self._stalls = EventLoopStalls(ports.stalls, self._clock)
        self._broken: AsyncEvent = AsyncEvent()
        self._unserved = UnservedFields(ports.agents.is_another, ports.client.report_unserved)

    def _session_tools(self, stages: SessionStages) -> SessionTools:
        return SessionTools(
            stages.tools,
            session_of(self.grant),
            self._events.post,
            held_weakly(self._end_call),
            held_weakly(self._hand_over),
            self._ports.start_detached,
            self._writer.pending_write,
        )

    def _new_takeover(self) -> Takeover:
        return Takeover(
            self._writer,
            self.resumption,
            self._wire,
            self._audio_input,
            self._core,
            self._ending_requests,
            self._config,
            self._clock,
            post=self._events.post,
            put=held_weakly(self._put),
            configure=held_weakly(self._configure),
            store_record=held_weakly(self._store_record),
            restore_record=self._ports.records.restore,
            hand_over=self._ports.agents.hand_over,
        )

    @property
    def is_recorded(self) -> bool:
        """Return whether a recording of the call has begun."""
        return self._recorded is not None and self._recorded.has_begun

    # --- run and end --------------------------------------------------------------------------

    async def run(self, socket: ClientSocket) -> None:
        """Serve the client until the connection closes or the session's time is over.

        Every task of the session is a child of this function call and has ended when it returns. Cancel it to end the
        session: its turns are closed as abandoned first.
        """
        connection = self.resumption.connection(socket)
        self._read_limit.is_gone = connection.is_gone
        self._stalls.begin()
        self._events.drain = self._handle_events
        self._put([] if self._writer.restored else self._wire.hello())
        try:
            async with FreeingTaskGroup() as group:
                try:
                    self._begin(group, connection)
                    # In a task of its own: each frame would wake all callers up to the request's handler.
                    await asyncio.wait([group.create_task(self._receive(connection), name="receive")])
                finally:
                    self._leave()
                await answer_close(connection, self._ports.records.wait_until_written)
                raise _ConnectionClosed
        except* _ConnectionClosed:
            pass
        finally:
            if (hooks := self._ports.hooks) is not None:
                self._report("hooks", lambda _: hooks.session_ended(), None)
            self.resumption.end()
            self._audio_input.feed.detach()
            if self._recorded is not None:
                self._recorded.end()
            self._events.drain = None
            if self._journal is not None:
                self._journal.close()

    def _begin(self, group: asyncio.TaskGroup, connection: SessionConnection) -> None:
        self._group = group
        if self._recorded is not None:
            self._recorded.start()
        self.post(e.SettingsChanged(self._config.turn_settings()))
        if self._writer.restored is not None:
            if self._writer.restored.items:
                self._greeter.greeting = None
            if self._writer.agent is not None:
                self._use(self._writer.agent)
            self.takeover.go_on(connection)
        self._answering.renew_phrases()
        group.create_task(self._outbox.run(connection), name="outbox")
        group.create_task(self.takeover.run(), name="text")
        self._listening.start(group)
        self._answering.start(group)
        group.create_task(self._guard(connection), name="guard")
        written = self._ports.records.wait_until_written
        ending = end_on_request(self._ending_requests, connection, self._outbox, self._wire, written)
        group.create_task(ending, name="end")
        group.create_task(self._expire(), name="expiry")
        if self._ports.hooks is None or self._writer.has_variables:
            self._greeter.release()
        else:
            group.create_task(self._start(self._ports.hooks), name="start")
        self._mcp.connect(self._config.mcp, group)
        if self._greeter.awaits_user:
            group.create_task(self._greet_in_time(), name="greeting")

    async def _receive(self, connection: SessionConnection) -> None:
        outbox, read_limit = self._outbox, self._read_limit
        connection.deliver_to(self._take_at_once)
        try:
            while (raw := await connection.receive()) is not None:
                read_limit.count(raw)
                n_bytes = outbox.n_bytes
                await self._take(raw, is_followed=connection.has_message)
                if outbox.n_bytes != n_bytes:
                    read_limit.charge_bytes(outbox.n_bytes - n_bytes)
                if not outbox.writable.is_set():
                    await outbox.writable.wait()
                if not read_limit.admits_message():
                    await read_limit.wait_for_message()
        finally:
            connection.deliver_to(None)

    def _take_at_once(self, raw: bytes) -> bool:
        """Process a frame of audio while `_receive` waits; return False if that has to take the message."""
        outbox, read_limit = self._outbox, self._read_limit
        if len(raw) > MAX_BYTES_AT_ONCE or self._greeter.greeting is not None:
            return False
        if not outbox.writable.is_set() or not read_limit.admits_at_once():
            return False
        what = inbound.read(raw, self._config, self._core.context.conversation.find)
        if not isinstance(what, inbound.AudioAppended) or not self._audio_input.takes_at_once(what.audio):
            return False
        read_limit.count(raw)
        n_bytes = outbox.n_bytes
        if self._takes_sound():
            self._audio_input.process_at_once(what.audio, read_limit)
        read_limit.charge_bytes(outbox.n_bytes - n_bytes)
        return True

    async def _expire(self) -> None:
        left_s = max(0, self.grant.expires_at - clock.unix_s())
        await asyncio.sleep(left_s)
        self.end_after_turn(expired(left_s if self.grant.length_s is None else self.grant.length_s))

    async def _start(self, hooks: SessionHooks) -> None:
        """Fill in the variables that a hook sets, and then let the agent greet."""
        variables = await hooks.session_started()
        self._writer.add_change(VariablesSet(dict(variables)))
        if variables:
            self._config = self._config.with_variables(variables)
            self._wire.config = self._ports.client.visible(self._config)
            self._change_settings()
        if self._greeter.release():
            self._greet()

    async def _greet_in_time(self) -> None:
        await asyncio.sleep(GREETING_WAIT_S)
        self._greet()

    def _greet(self) -> None:
        """Have the agent speak first, once."""
        self._greeter.greet(self._config)
        self._handle_end_of_turn()

    async def _guard(self, connection: SessionConnection) -> None:
        """Close the connection when our own code failed: a session in an unknown state must not continue."""
        await self._broken.wait()
        await connection.close(INTERNAL_ERROR, "internal error")

    # --- ends by the server -----------------------------------------------------------------

    def end_now(self, ending: Ending) -> None:
        """Send the reason to the client, and close the connection. A running turn is cut."""
        self._ending_requests.now(ending)

    def end_after_turn(self, ending: Ending) -> None:
        """End the session once the running turn has been played, within `MAX_LAST_TURN_S`; no other turn begins."""
        self._ending_requests.after_turn(ending)
        self._handle_end_of_turn()

    def _end_call(self) -> None:
        """End the session when the agent's last word was played."""
        self.end_after_turn(Ending("call_ended", "The agent has ended the call.", NORMAL))

    def _hand_over(self, agent: str) -> None:
        """Have another agent go on with the session, from the next reply on.

        Raises:
            LookupError: this agent may not have the session.
        """
        if self._group is None:
            return
        if (to := self._ports.agents.hand_over(agent)) is None:
            raise LookupError(f"expected an agent that may have this session, got {agent!r}")
        self._config = self._config.handed_over(to.config)
        self._writer.add_change(AgentChanged(to.name))
        self._use(to)
        self._put(self._wire.handed_over(to.name))

    def _use(self, to: NextAgent) -> None:
        self._agent.replace(to)
        self._renew_tools()
        self._answering.renew_phrases()

    def _renew_tools(self) -> None:
        """Offer the tools that the agent and the session's MCP servers have now, from the next reply on."""
        self._config = replace(self._config, server_tools=self._agent.renew_tools(self._config.tools))
        self._wire.config = self._ports.client.visible(self._config)
        self._change_settings()

    def _change_settings(self) -> None:
        self.post(e.SettingsChanged(self._config.turn_settings()))
        self._prompt_builder.keep_warm(self._group)

    def _handle_end_of_turn(self) -> None:
        if self._core.is_silent:
            self._ending_requests.turn_over()
            if self._ending_requests.ending is None:
                self._greeter.announce(self._config)

    def _takes_sound(self) -> bool:
        """Return whether the user's audio is processed: not if the session is about to end, except in mid-utterance."""
        return self._ending_requests.ending is None or self._core.user.state in (UserState.SPEAKING, UserState.HOLDING)

    def _leave(self) -> None:
        """Close every turn while the tasks still run: some take long to end, and no new one may begin meanwhile."""
        self._group = None
        self._mcp.stop()
        self._audio_input.close()
        self.takeover.close()
        self.post(e.UserLeft("the user left"))
        self._wake.cancel()

    def _configure(self, config: SessionConfig) -> None:
        """Use the settings that the client made in another process."""
        self._config = config
        self._wire.config = self._ports.client.visible(config)
        self._listening.configure(config)

    # --- the client's events ------------------------------------------------------------------

    async def _take(self, raw: str | bytes, *, is_followed: bool) -> None:
        """Process a message; with `is_followed` the next one has come already."""
        what = inbound.read(raw, self._config, self._core.context.conversation.find)
        if isinstance(what, inbound.AudioAppended):
            if self._greeter.greeting is not None:
                self._greet()
            if self._takes_sound() and not (is_followed and self._audio_input.joins(what.audio)):
                await self._audio_input.process(what.audio, self._read_limit)
            return
        await self._audio_input.process_joined(self._read_limit)
        match what:
            case inbound.InputCommit(event_id):
                self.post(self._audio_input.commit_event(event_id))
            case inbound.InputClear(event_id):
                self.post(e.ClearRequested(event_id))
            case inbound.SessionUpdate():
                self._update(what)
            case inbound.Unreadable() as why:
                self._put(self._wire.error(why))
            case inbound.Nothing():
                pass
            case inbound.RecordingCreated() as created:
                if refusal := self._listening.recorded_items.create(created, self._config.input_format):
                    self._put(self._wire.error(inbound.Unreadable.because(refusal, created.request.event_id)))
            case e.ReplyRequested() as request:
                self._request_reply(request)
            case e.ItemRetrieveRequested(item_id=item_id) as request:
                await self._retrieved_audio.prepare(item_id, self._config)
                self.post(request)
            case inbound.PartlyServed() as served:
                for notice in self._unserved.notices_of_response(served):
                    self._put(self._wire.error(notice))
                self._request_reply(served.request)
            case e.ItemCreateRequested(event_id, item) if refusal := orphan(self._core.context.conversation, item):
                self._put(self._wire.error(inbound.Unreadable.because(refusal, event_id)))
            case event:
                self.post(event)

    def _request_reply(self, request: e.ReplyRequested) -> None:
        ending = self._ending_requests.ending
        if ending is not None:
            self._put(self._wire.error(a.Refused(request.event_id, ending.code, ending.why)))
            return
        try:
            self._core.context.core.conversation.refuse_input(request.reply.context)
            self._ports.client.check_reply(self._config, request.reply)
        except ProtocolError as why:
            self._put(self._wire.error(inbound.Unreadable.because(why, request.event_id)))
            return
        self.post(request)

    def _update(self, request: inbound.SessionUpdate) -> None:
        self._read_limit.charge(UPDATE_EVENTS)
        try:
            before = self._config.listening_only() if request.listening_only else self._config
            after = before.merged(request.update)
            self._ports.client.check_update(self._config, after)
        except ProtocolError as why:
            self._put(self._wire.error(inbound.Unreadable.because(why, request.event_id)))
            return
        if is_published(request.update):
            self._wire.speak(GA)  # some applications send the older header and the published events
        self._config = after
        self._writer.add_update(request.update)
        self._listening.configure(after)
        if not self._audio_input.in_utterance:
            self._renew_transcription()
        resumable = self.resumption.offer(after)
        (self._put_secret if resumable else self._put)(
            self._wire.updated(self._ports.client.visible(after), **resumable)
        )
        for notice in self._unserved.notices(request, after.model):
            self._put(self._wire.error(notice))
        self._change_settings()
        self._answering.renew_phrases()
        self._mcp.connect(after.mcp, self._group)
        self._greet()

    # --- the core -----------------------------------------------------------------------------

    def post(self, event: e.Event) -> None:
        """Post an event to the core, and carry out its commands, before this returns.

        An event that a command causes waits until the commands before it are done.
        """
        self._events.post(event)

    def _handle_events(self) -> None:
        """Handle all events that wait. An error here is a bug: it is logged, and ends this session only."""
        events = self._events.waiting
        try:
            if self._stall_log.n_recorded != self._stalls.n_posted:
                self._events.put_first(self._stalls.new())
            while events:
                event, now_ms = events[0], self._clock.now_ms()
                commands = self._core.handle(event, now_ms)
                if isinstance(event, self._scoring.handled):
                    self._scoring.handle(event)
                if self._journal is not None:
                    self._journal.record(now_ms, event, commands)
                if self._subscribers.is_watched or self._turn_observer.tracker.turns:
                    self._turn_observer.update(now_ms)
                for command in commands:
                    self._do(command)
                if self._writer.store is not None:
                    self._writer.on_event(event, commands)
                events.popleft()
            self._handle_end_of_turn()
        except Exception as bug:
            log_crash("session", bug, session=self.grant.session_id)
            events.clear()
            self._broken.set()

    def _do(self, command: c.Command) -> None:
        match command:
            case c.Notify(what):
                self._announce(what)
            case c.BeginUtterance(utterance):
                self._renew_transcription()
                self._prompt_builder.keep_warm(self._group)
                self._audio_input.begin(utterance)
            case c.DropUtterance(utterance):
                self._audio_input.discard(utterance)
            case c.Duck():
                self._audio_input.report_speech()
            case c.EndUtterance(utterance):
                self._audio_input.end(utterance)
            case c.FlushTranscript(_, pause):
                self._audio_input.flush(pause)
            case c.CommitSilence():
                self.post(self._audio_input.commit_silence())
            case c.DropAudio():
                self._audio_input.drop()
            case c.StartReply():
                if self._group is not None:
                    self._replies.start(command, self._group)
            case c.TranscribeRecording():
                if self._group is not None:
                    self._listening.recorded_items.transcribe(
                        command, self._listening.transcription.options, self._group
                    )
            case c.SummarizeHistory():
                if self._group is not None:
                    self._group.create_task(self._answering.summaries.summarize(command), name="summary")
            case c.RunTool():
                if self._group is not None:
                    self._tools.run(command, self._group)
            case c.CancelTool():
                self._tools.cancel(command)
            case c.ReplyCommand():
                self._replies.execute(command)
            case c.WakeAt(at_ms):
                self._wake.set(at_ms)
            case c.EndSession():
                self.end_after_turn(Ending("idle", "The user was silent.", NORMAL))
            case c.StoreRecord(record) if not self._writer.has_moved:
                self._store_record(record)
            case c.ReportStuck():
                self._report("telemetry", self._ports.observer.was_stuck, command)
            case c.ReportStrategyFailure():
                self._report("telemetry", self._ports.observer.strategy_failed, command)
            case c.ReportOverrun():
                self._report("telemetry", self._ports.observer.overran, command)

    def _announce(self, what: a.Notification) -> None:
        if self.items is not None:
            self.items.on_notification(what, self._audio_input.received_ms)
        frames = self._wire.render(redacted_notification(what) if self.grant.redacted else what)
        if isinstance(what, a.ResponseEnded):
            frames += self._wire.limits()
            if self._replies.end(what.response_id, frames):
                return
        self._put(frames)

    def _store_record(self, record: TurnRecord) -> None:
        if self._answering.preparation.n_made:
            self._answering.preparation.on_record(record)
        self._report("records", self._ports.records.store, record)
        if self._recorded is not None and self._recorded.begin_if_announced(record):
            self._greeter.announced(record.turn)
            self._greet()
        extensions = self._config.extensions
        if extensions is not None and extensions.turn_events and record.outcome is not None:
            self._report("records", self._send_record, record)

    def _send_record(self, record: TurnRecord) -> None:
        visible = redacted_record(record) if self.grant.redacted else record
        self._put(self._wire.turn_over(record_plain(visible, self.grant.agent)))

    def _report(self, what: str, take: Callable[[_Report], None], report: _Report) -> None:
        """Give a report to an observer. One that fails is logged, and the session continues."""
        try:
            take(report)
        except Exception as bug:
            log_crash(what, bug)

    def _put(self, frames: Frames) -> None:
        self._outbox.put_events(frames)

    def _put_secret(self, frames: Frames) -> None:
        self._writer.write_secret()
        self._outbox.put_events(frames, has_secret=True)

    def _on_sent(self, outgoing: OutgoingFrame) -> None:
        key, filler_ms = (outgoing.turn, outgoing.revision), outgoing.filler_ms
        self.post(e.FillerSent(*key, filler_ms) if filler_ms else e.OutputSent(*key, outgoing.counts_ms))

    def _on_full(self) -> None:
        self.resumption.drop(f"the client left more than {MAX_UNSENT_BYTES >> 20} MB unread")

    # --- the audio input ----------------------------------------------------------------------

    def _renew_transcription(self) -> None:
        """Apply the client's transcription settings, if no transcript is pending."""
        if not self._core.user.utterances.pending:
            self._listening.transcription.renew()


def _core_and_journal(
    grant: SessionGrant, config: SessionConfig, stages: SessionStages, settings: CoreSettings, ports: SessionPorts
) -> tuple[Core, Journal | None]:
    """Return the core of a session, and the journal of its events; None: there is no journal."""
    core = replace(settings, short_words=stages.transcriber.capabilities.short_words)
    opening = Opening(grant.session_id, config.turn_settings(), core, stages.strategies)
    rebuilt, journal = opening.rebuilt(), ports.open_journal(opening)
    return rebuilt, None if journal is NO_JOURNAL else IsolatedJournal(journal)
