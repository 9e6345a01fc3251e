"""A client session: one WebSocket to a server, opened, sent to and received from."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import msgspec

from voicepipe import clock
from voicepipe.audio.samples import Samples
from voicepipe.client import events as e
from voicepipe.client.address import DEFAULT_URL, Address
from voicepipe.client.connection import Connection, dial
from voicepipe.client.delivery import Delivery
from voicepipe.client.errors import CallEnded, CallFailed, NoAnswer
from voicepipe.client.mcp import Approve, McpServer
from voicepipe.client.microphone import FRAME_MS, RATE_HZ, CaptureClock, Microphone
from voicepipe.client.session_options import SessionOptions
from voicepipe.client.speaker import TRACKED_ITEMS, Speaker
from voicepipe.client.tools import Function, Tool, ToolCalls
from voicepipe.client.turn_result import Answer, TurnCollector
from voicepipe.errors import ProtocolError
from voicepipe.protocol import binary
from voicepipe.protocol.extensions import Extensions, Resumed
from voicepipe.tasks import BackgroundTasks, background_tasks

__all__ = ["FRAME_MS", "RATE_HZ", "Call", "connect"]

REPORT_EVERY_MS: Final = 100
"""Interval of the playback reports while audio plays."""

MAX_EARLY: Final = 1_000
"""Number of events that are kept until the settings are confirmed."""

ANSWER_TIMEOUT_MS: Final = 30_000
"""Timeout for an answer, counted from the last event of the server."""

LAST_ANSWER_MS: Final = 400
"""Time after the user's speech after which a complete answer counts as the last one. A server needs some 100 ms to
detect that the user goes on speaking."""

APOLOGY_MS: Final = 2_000
"""Time to wait for the apology after a failed answer. It begins at once, if there is one."""


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    *,
    key: str | None = None,
    agent: str | None = None,
    session_options: SessionOptions | None = None,
    tools: Sequence[Function | Tool] = (),
    mcp: Sequence[McpServer] = (),
    approve: Approve | None = None,
    buffer_ms: int = 0,
) -> AsyncIterator[Call]:
    """Connect to a server; leaving the block closes the connection.

    Args:
        url: see `Address.parse`.
        key: an API key or an `ek_` client secret, for servers that require one.
        agent: the agent that answers; None leaves it to the key, or to the server's default.
        session_options: the requested session settings.
        tools: Python functions that the agent may call, beside those that it has; they run while events are read.
        mcp: MCP servers whose tools the agent may call, at origins that the server allows.
        approve: decides on each call that needs approval, while events are read. None: `Call.approve` does.
        buffer_ms: how long audio is buffered before playback, as players do against jitter; reported to the server.

    Raises:
        ConfigError: the address is not valid.
        ServerUnreachable: no server answers there.
        CallRefused: the server refused the connection; the error has the reason.
        CallFailed: the server accepted the session and then refused the settings or broke the protocol.
        TypeError: a tool has a parameter without a name, or of a type that JSON cannot hold.
    """
    functions = [each if isinstance(each, Tool) else Tool.of(each) for each in tools]
    address = Address.parse(url, agent=agent)
    websocket = await dial(address, key)
    async with background_tasks() as owned:
        connection = Connection(address, key, websocket, owned)
        options = session_options or SessionOptions()
        try:
            call = Call(
                connection, options, tasks=owned, tools=functions, mcp=mcp, approve=approve, buffer_ms=buffer_ms
            )
            await call.agree()
            owned.start(call.report(), name="playback reports")
            yield call
        finally:
            owned.cancel()
            await connection.close()


class Call:
    """An open session. Read its events from one task; send from any."""

    def __init__(
        self,
        connection: Connection,
        session_options: SessionOptions,
        *,
        tasks: BackgroundTasks,
        tools: Sequence[Tool] = (),
        mcp: Sequence[McpServer] = (),
        approve: Approve | None = None,
        buffer_ms: int = 0,
    ) -> None:
        self.session_id = self.model = ""
        self.extensions: Extensions | None = None
        """The extensions to the published events that the server has agreed to."""

        self._connection, self._session_options = connection, session_options
        self._speaker = Speaker(buffer_ms)
        self._streams: dict[int, e.AudioStreamStarted] = {}  # bounded: the audio of the newest answers
        self._capture = CaptureClock()
        self._delivery = Delivery(partial(connection.send, again=False))
        connection.on_resumed, connection.recent_events = self._resumed, self._delivery.recent_events
        self._is_cut_elsewhere = False
        """Whether the next response to end was cut by the death of its node: its received audio plays on."""

        self._tools = ToolCalls(tools, tasks, self._return)
        self._mcp, self._approve, self._tasks = mcp, approve, tasks
        self._session_tools: Sequence[Mapping[str, Any]] = ()
        self._early: deque[e.ServerEvent] = deque(maxlen=MAX_EARLY)  # full: the oldest is dropped
        """Events that came before the settings were confirmed, such as those of a greeting: they are returned first."""

        self._n_turns = 0
        self._turn: TurnCollector | None = None
        """The latest turn."""

        self._metadata: Mapping[str, str] = {}

    @property
    def sent_ms(self) -> int:
        """Return how much audio was sent so far, in ms."""
        return self._connection.sent_samples * 1_000 // RATE_HZ

    # --- the whole turn -----------------------------------------------------------------------

    async def turn(self, sound: Samples, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Answer:
        """Send a recording in real time, then silence until the answer is complete.

        A turn in which the agent calls tools ends with the answer to their results. A turn whose answer failed ends
        with the apology, if there is one. Answers of other turns, such as a greeting, are left out.

        Args:
            sound: int16, (n_samples,), 24 kHz.
            timeout_ms: how long to wait for the next event after the end of the recording.

        Raises:
            NoAnswer: no answer came; the error has how far the server got.
            CallEnded: the connection was closed before.
        """
        collector = self._new_turn()
        microphone = Microphone(sound, first_ms=self.sent_ms)
        async with background_tasks() as owned:
            owned.start(microphone.run(self.send), name="microphone")
            while event := await self._next_within(_wait_ms(collector, microphone, timeout_ms)):
                collector.handle(event, microphone.position_ms())
            await self._await_apology(collector, microphone.position_ms)
        answer = collector.answer() if collector.complete else None
        if answer is None:
            raise NoAnswer(collector.progress())
        return answer

    async def text_turn(self, text: str, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> Answer:
        """Send a text message, and return the answer. The latency counts from the message, and to the first text in a
        session without audio.

        A turn in which the agent calls tools ends with the answer to their results. A turn whose answer failed ends
        with the apology, if there is one. Answers of other turns, such as a greeting, are left out.

        Raises:
            NoAnswer: no answer came; the error has how far the server got.
            CallEnded: the connection was closed before.
        """
        collector = self._new_turn()
        ahead_ms = self.sent_ms - clock.monotonic_ms()
        collector.typed(self.sent_ms)
        await self.write(text)
        await self._delivery.request(self._metadata)
        while not collector.complete and (event := await self._next_within(timeout_ms)):
            collector.handle(event, clock.monotonic_ms() + ahead_ms)
        await self._await_apology(collector, lambda: clock.monotonic_ms() + ahead_ms)
        answer = collector.answer() if collector.complete else None
        if answer is None:
            raise NoAnswer(collector.progress())
        return answer

    async def _await_apology(self, collector: TurnCollector, position_ms: Callable[[], int]) -> None:
        """Wait for the apology, if the answer failed and the session has audio."""
        if self._session_options.text_only:
            return
        while collector.complete and collector.apology_due and (event := await self._next_within(APOLOGY_MS)):
            collector.handle(event, position_ms())

    def _new_turn(self) -> TurnCollector:
        """Return the collector of a new turn, with a request name of its own."""
        self._n_turns += 1
        name, extensions = f"turn_{self._n_turns}", self._session_options.extensions
        self._metadata = {**dict(() if extensions is None else extensions.metadata), e.REQUEST: name}
        self._turn = TurnCollector(
            written=self._session_options.text_only,
            tools=self._tools.names,
            request=name,
            plays_until_ms=self.sent_ms + self._speaker.left_ms(clock.monotonic_ms()),
            approves=self._approve is not None,
        )
        return self._turn

    # --- single steps -------------------------------------------------------------------------

    async def send(self, samples: Samples) -> None:
        """Send more of the microphone's audio: int16, (n_samples,), 24 kHz.

        Raises:
            CallEnded: the connection is closed.
        """
        await self._connection.send_sound(samples)
        self._capture.sent(self.sent_ms, clock.monotonic_ms())

    async def commit(self) -> None:
        """Commit the user's turn, where the session does not detect its end by itself."""
        await self._send({"type": "input_audio_buffer.commit"})

    async def write(self, text: str) -> None:
        """Add a text message of the user to the conversation."""
        content = [{"type": "input_text", "text": text}]
        await self._delivery.add({"type": "message", "role": "user", "content": content})

    async def return_result(self, call_id: str, output: str) -> None:
        """Send the result of a function call that is none of the tools; then request the next answer with `respond`."""
        await self._delivery.add({"type": "function_call_output", "call_id": call_id, "output": output})

    async def approve(self, request_id: str, approve: bool = True, *, reason: str = "") -> None:
        """Decide on a call of an MCP server that needs approval; the agent goes on by itself.

        Args:
            request_id: the ID in the `ApprovalRequested`.
            approve: whether the call may run.
            reason: the reason, for the LLM.
        """
        decision = {"approval_request_id": request_id, "approve": approve, **({"reason": reason} if reason else {})}
        await self._delivery.add({"type": "mcp_approval_response", **decision})

    async def respond(self) -> None:
        """Request an answer, after the running one if there is one."""
        await self._delivery.request()

    async def cancel(self) -> None:
        """Cancel the answer in progress."""
        await self._send({"type": "response.cancel"})

    async def next_event(self) -> e.ServerEvent:
        """Wait for the server's next event.

        Raises:
            CallEnded: the connection is closed.
            CallFailed: the server sent something that is not an event.
        """
        if self._early:
            return self._early.popleft()
        while True:
            raw = await self._connection.receive()
            event = self._sound(raw) if isinstance(raw, bytes) else e.read(raw)
            self._connection.last_output.handle(event)
            if await self._delivery.handle(event):
                continue
            self._update_speaker(event)
            await self._tools.handle(event)
            if isinstance(event, e.ApprovalRequested) and self._approve is not None:
                self._tasks.start(self._decide(event, self._approve), name=f"approval {event.name}")
            return event

    async def __aiter__(self) -> AsyncIterator[e.ServerEvent]:
        """Yield every event of the server until the connection is closed."""
        while True:
            try:
                yield await self.next_event()
            except CallEnded:
                return

    # --- internal -----------------------------------------------------------------------------

    async def agree(self) -> None:
        """Wait for the session and apply the requested settings; `connect` does this.

        Raises:
            CallFailed: the server refused the settings, or broke the protocol.
        """
        await self._ready()
        servers = [server.to_wire() for server in self._mcp]
        own = bool(self._tools.names or servers)
        tools = {"tools": [*self._tools.to_wire(self._session_tools), *servers]} if own else {}
        await self._send({"type": "session.update", "session": self._session_options.to_wire() | tools})
        await self._ready()

    async def _ready(self) -> None:
        early: deque[e.ServerEvent] = deque(maxlen=MAX_EARLY)
        while event := await self._next_within(ANSWER_TIMEOUT_MS):
            match event:
                case e.SessionReady():
                    self._apply(event)
                    self._early.extend(early)
                    return
                case e.ServerError(_, message):
                    raise CallFailed(f"the server refused the session's settings: {message}")
                case _:
                    early.append(event)
        raise CallFailed("expected session.created and session.updated from the server, got none")

    def _apply(self, ready: e.SessionReady) -> None:
        self.session_id, self.model, self.extensions = ready.session_id, ready.model, ready.extensions
        self._session_tools = ready.tools
        self._connection.use_binary(self.extensions is not None and self.extensions.binary_audio)
        if ready.resume_secret:
            self._connection.may_resume(ready.session_id, ready.resume_secret, ready.resume_window_ms)

    async def _next_within(self, wait_ms: int) -> e.ServerEvent | None:
        """Return the next event, or None when none came in time."""
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                return await self.next_event()
        except TimeoutError:
            return None

    async def report(self) -> None:
        """Report playback to the server until the connection is closed; `connect` runs this.

        The loudspeaker is simulated: it plays audio on arrival and stops when the server detects the user.
        """
        while self.extensions is not None and self.extensions.playback_reports:
            await asyncio.sleep(REPORT_EVERY_MS / 1_000)
            now_ms = clock.monotonic_ms()
            input_ms = self._capture.position_ms(now_ms)
            for played in self._speaker.reports(now_ms):
                event = {"type": "voicepipe.playback", **msgspec.to_builtins(played), "input_ms": input_ms}
                try:
                    await self._connection.send(event)
                except CallEnded:
                    return  # the receiving side gets the same error

    def _resumed(self, resumed: Resumed) -> list[dict[str, Any]]:
        """Return the events to send on a resumed connection."""
        self._is_cut_elsewhere = resumed.moved
        if resumed.moved and self._turn is not None:
            last = self._connection.last_output
            self._turn.moved(last.item_id, last.received, is_done=last.is_done)
        if resumed.moved:
            self._delivery.moved(resumed.answers)
        return self._delivery.probe()

    def _sound(self, frame: bytes) -> e.ServerEvent:
        try:
            sound = binary.agent_sound(frame)
            stream = self._streams[sound.stream]
        except (ProtocolError, KeyError) as why:
            raise CallFailed(f"expected a frame of the agent's audio: {why}") from why
        return e.ReplyAudio(stream.response_id, sound.audio, stream.item_id)

    def _update_speaker(self, event: e.ServerEvent) -> None:
        """Apply an event to the loudspeaker."""
        now_ms = clock.monotonic_ms()
        match event:
            case e.AudioStreamStarted():
                self._streams[event.stream] = event
                if len(self._streams) > TRACKED_ITEMS:
                    del self._streams[next(iter(self._streams))]
            case e.ReplyAudio(_, pcm, item_id):
                self._speaker.play(item_id, len(pcm) // 2, now_ms)
            case e.ReplyStarted():
                self._is_cut_elsewhere = False
            case e.ReplyEnded(status="cancelled") if self._is_cut_elsewhere:
                self._is_cut_elsewhere = False
            case e.SpeechStarted() | e.ReplyEnded(status="cancelled"):
                self._speaker.flush(now_ms)

    async def _send(self, event: dict[str, Any]) -> None:
        await self._connection.send(event)

    async def _decide(self, requested: e.ApprovalRequested, approve: Approve) -> None:
        """Decide on a call with `approve`; if `approve` fails, the call is refused."""
        try:
            decision = await approve(requested)
        except Exception as why:
            decision, reason = False, str(why)
        else:
            reason = ""
        with suppress(CallEnded):  # the receiving side gets the same error
            await self.approve(requested.request_id, decision, reason=reason)

    async def _return(self, results: list[dict[str, Any]]) -> None:
        """Send the results of function calls, and request the answer to them."""
        for result in results:
            await self._delivery.add(result)
        await self._delivery.request(self._metadata)


def _wait_ms(collector: TurnCollector, microphone: Microphone, timeout_ms: int) -> int:
    """Return how long to wait for the next event: until the recording is over, and then `timeout_ms`."""
    left_ms = microphone.sound_left_ms()
    if collector.complete:
        return max(0, left_ms + LAST_ANSWER_MS)
    return max(0, left_ms) + timeout_ms
