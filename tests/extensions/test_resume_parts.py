"""The parts of a resumption by themselves: the waiting audio input, the paused core, the connection's buffer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from voicepipe.ports.transcriber import Samples, TranscriberCapabilities
from voicepipe.protocol.outbound import EventRenderer
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session import connection as lines
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.connection import Reconnection, SessionConnection
from voicepipe.session.outbox import OutgoingFrame
from voicepipe.session.read_limit import ReadLimit
from voicepipe.session.resumption import ResumeSecret
from voicepipe.session.socket import TakeAtOnce
from voicepipe.testing.scenario import Scenario
from voicepipe.testing.user import WIRE_HZ
from voicepipe.turn import events as e
from voicepipe.turn.record import attribution
from voicepipe.turn.settings import Deadlines
from voicepipe.turn.states import AgentState, UserState

CONFIG = SessionConfig.start(session_id="sess_r", model="default", voice="v", instructions="", expires_at=0)
AWAY_MS = 5_000


# --- the audio input ------------------------------------------------------------------------------


@dataclass
class HandClock:
    """A session's clock, moved by hand."""

    ms: int = 0

    def now_ms(self) -> int:
        return self.ms


async def listened(question: Samples, *, down_after_ms: int | None) -> list[e.Event]:
    """Return the audio input's events for a question in real time.

    The connection may be down in its midst; the audio of that time then comes all at once afterwards.
    """
    clock, events = HandClock(), list[e.Event]()
    audio_input = AudioInput(CONFIG, TranscriberCapabilities(rate_hz=16_000, streams=True), clock, events.append)  # type: ignore[arg-type]
    frame = 20 * WIRE_HZ // 1_000
    for first in range(0, len(question), frame):
        clock.ms += 20
        if down_after_ms is not None and first == down_after_ms * WIRE_HZ // 1_000:
            audio_input.pause()
            clock.ms += AWAY_MS
            assert audio_input.restart() == down_after_ms
            audio_input.resume()
        await audio_input.process(question[first : first + frame].astype("<i2").tobytes(), ReadLimit())
    audio_input.close()
    return events


async def test_a_line_that_is_down_is_no_silence(question: Samples) -> None:
    """What was said goes on where it was; only the session's clock has moved."""
    whole = await listened(question, down_after_ms=None)
    voiced = [event for event in whole if isinstance(event, e.SpeechStarted | e.SpeechPaused)]
    assert len(voiced) >= 2
    for down_after_ms in range(0, len(question) * 1_000 // WIRE_HZ, 300):
        cut = await listened(question, down_after_ms=down_after_ms)
        assert [_place(event) for event in cut] == [_place(event) for event in whole], down_after_ms


@pytest.mark.parametrize("down_after_ms", [None, 700, 1_100])
async def test_an_echo_is_known_after_a_line_was_down(question: Samples, down_after_ms: int | None) -> None:
    """The agent's audio comes back 100 ms later, in one part after the connection was down."""
    clock, reports = HandClock(), list[e.SpeechWentOn]()

    def take(event: e.Event) -> None:
        if isinstance(event, e.SpeechStarted):
            audio_input.report_speech()
        elif isinstance(event, e.SpeechWentOn):
            reports.append(event)

    audio_input = AudioInput(CONFIG, TranscriberCapabilities(rate_hz=16_000, streams=True), clock, take)  # type: ignore[arg-type]
    audio_input.echo.plays(question, WIRE_HZ, 0)
    back = np.concatenate([np.zeros(100 * WIRE_HZ // 1_000, np.int16), question // 4])
    frame = 20 * WIRE_HZ // 1_000
    for first in range(0, len(back), frame):
        clock.ms += 20
        if down_after_ms is not None and first == down_after_ms * WIRE_HZ // 1_000:
            audio_input.pause()
            clock.ms += AWAY_MS
            audio_input.restart()
            audio_input.resume()
        await audio_input.process(back[first : first + frame].astype("<i2").tobytes(), ReadLimit())
    audio_input.close()
    assert [event for event in reports if event.echoes]


def _place(event: e.Event) -> tuple[str, int]:
    """An event, by where in the user's audio it lies."""
    match event:
        case e.SpeechStarted(_, audio_start_ms):
            return "started", audio_start_ms
        case e.SpeechPaused(_, audio_end_ms):
            return "paused", audio_end_ms
        case e.SilenceGrew(silence_ms):
            return "silent", silence_ms
    return type(event).__name__, 0


# --- the core -------------------------------------------------------------------------------------


def test_deadlines_stand_still_while_the_line_is_down() -> None:
    """The user is in a pause, and comes back after more than any deadline."""
    scenario = Scenario(deadlines=Deadlines(utterance_ms=2_000))
    scenario.speaks()
    scenario.is_away(60_000)
    assert scenario.driver.user_state() is UserState.SPEAKING
    scenario.pauses()
    scenario.is_away(60_000)
    assert scenario.driver.user_state() is UserState.HOLDING
    scenario.stops()
    assert scenario.driver.user_state() is UserState.ENDED


def test_deadlines_run_again_afterwards() -> None:
    scenario = Scenario(deadlines=Deadlines(transcript_ms=1_000, first_output_ms=1_500))
    scenario.utters()
    scenario.is_away(60_000)
    assert scenario.outcomes() == []
    scenario.passes(1_600)
    assert scenario.outcomes()[0][0] == "failed"


def test_a_line_that_breaks_before_the_first_sound_leaves_no_hole() -> None:
    """Only the breath before the first word had been sent: the reply is audible when the rest is, and not before."""
    scenario = Scenario()
    scenario.utters()
    scenario.model_requested()
    scenario.token()
    scenario.clause()
    scenario.sound(1_000)
    scenario.sent(10)  # what is audible begins after 20 ms
    scenario.is_away(2_000, missed_ms=10)
    scenario.sent(990)
    scenario.model_done()
    scenario.voice_done()
    scenario.passes(5_000)
    (record,) = scenario.driver.records.values()
    marks = dict(record.marks)
    assert marks["first_sent"] < marks["first_audible"]
    assert record.unattributed_ms == 0


def test_a_reply_that_was_missed_is_spoken_when_the_client_is_back() -> None:
    """All of it had been sent, and none had arrived."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers(duration_ms=4_000)
    scenario.is_away(10_000, missed_ms=4_000)
    back_ms = scenario.driver.now_ms
    assert scenario.driver.agent_state() is AgentState.SPEAKING
    scenario.passes(3_900)
    assert scenario.driver.agent_state() is AgentState.SPEAKING
    scenario.passes(200)
    assert scenario.driver.agent_state() is AgentState.IDLE
    record = next(iter(scenario.driver.records.values()))
    assert dict(record.marks)[attribution.FIRST_AUDIBLE] == back_ms + 20  # where its first audible sample lies
    assert record.unattributed_ms == 0


def test_delivered_audio_counts_as_played_meanwhile() -> None:
    scenario = Scenario(interruption="immediate")
    scenario.utters()
    scenario.answers(duration_ms=4_000)
    scenario.is_away(10_000, missed_ms=1_000)
    scenario.speaks()
    record = next(iter(scenario.driver.records.values()))
    assert record.outcome == "interrupted"
    assert record.played_text == "It is noon."
    assert record.marks[-1][1] < scenario.driver.now_ms - 10_000  # it began before


def test_two_breaks_add_up() -> None:
    scenario = Scenario(deadlines=Deadlines(utterance_ms=3_000))
    scenario.speaks(for_ms=500)
    for _ in range(4):
        scenario.is_away(2_900)
    assert scenario.driver.core.user.state is UserState.SPEAKING
    scenario.passes(2_600)
    assert scenario.driver.core.user.state is not UserState.SPEAKING


# --- the line -------------------------------------------------------------------------------------


@dataclass
class Wired:
    """A client's socket that takes everything, and is closed when its client has said what it has to say."""

    said: list[str] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    hung_up: bool = False
    gone: bool = False
    has_message: bool = False
    dropped: bool = False

    async def receive(self) -> str | bytes | None:
        return self.said.pop() if self.said else None

    async def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    async def close(self, code: int, reason: str) -> None:
        self.hung_up = True

    def abort(self) -> None:
        self.dropped = True


def a_line(socket: Wired) -> SessionConnection:
    line = SessionConnection(socket, on_lost=lambda: None, on_back=lambda missed: None)
    line.allow_resume(True)
    return line


async def test_what_was_missed_comes_once_and_in_order() -> None:
    first, second = Wired(), Wired(["a word"])
    line = a_line(first)
    for number in range(1, 6):
        await line.send(number, OutgoingFrame(b"%d" % number))
    line.replace(Reconnection(second, 3, lambda: b"hello"))
    assert first.dropped
    assert await line.receive() == "a word"
    await line.send(6, OutgoingFrame(b"6"))
    assert second.frames == [b"hello", b"4", b"5", b"6"]


@dataclass
class Delivering(Wired):
    """A socket that delivers messages at once."""

    take: TakeAtOnce | None = None

    def deliver_to(self, take: TakeAtOnce | None) -> None:
        self.take = take


async def test_the_newest_socket_delivers_at_once_too() -> None:
    """From the first message on that was received. The older one delivers no more, nor does a connection that ends."""
    first, second, taken = Delivering(), Delivering(["a word"]), list[bytes]()

    def take(message: bytes) -> bool:
        taken.append(message)
        return True

    line = a_line(first)
    line.deliver_to(take)
    assert first.take is not None
    assert not first.take(b"the first one")
    line.replace(Reconnection(second, 0, lambda: b"hello"))
    assert await line.receive() == "a word"
    assert first.take is None
    assert second.take is not None
    assert second.take(b"at once")
    assert taken == [b"at once"]
    line.deliver_to(None)
    assert second.take is None


async def test_a_fault_in_what_was_delivered_is_one_of_what_is_received() -> None:
    """The call that reads the socket can't end the session."""

    def fail(message: bytes) -> bool:
        raise ZeroDivisionError(message)

    socket = Delivering(["two", "one"])
    line = a_line(socket)
    line.deliver_to(fail)
    assert await line.receive() == "one"
    assert socket.take is not None
    assert not socket.take(b"two")
    with pytest.raises(ZeroDivisionError, match="two"):
        await line.receive()


async def test_the_newest_of_two_wins() -> None:
    first, second, third = Wired(), Wired(["late"]), Wired(["a word"])
    line = a_line(first)
    await line.send(1, OutgoingFrame(b"1"))
    older, newer = (Reconnection(socket, 0, lambda: b"hello") for socket in (second, third))
    line.replace(older)
    line.replace(newer)
    assert older.over.is_set()
    assert await line.receive() == "a word"
    assert (second.frames, third.frames) == ([], [b"hello", b"1"])
    line.end()
    assert newer.over.is_set()


async def test_no_wait_after_the_resume_window() -> None:
    lost = asyncio.Event()
    line = SessionConnection(Wired(), on_lost=lost.set, on_back=lambda missed: None)
    line.allow_resume(True)
    async with asyncio.TaskGroup() as group:
        receiving = group.create_task(line.receive())
        await lost.wait()
        line.forbid_resume()
    assert receiving.result() is None


async def test_a_client_that_does_not_come_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "RESUME_WINDOW_MS", 0)
    line = a_line(Wired())
    assert line.is_whole
    assert await line.receive() is None
    assert not line.is_whole


async def test_a_connection_that_the_server_closes_stays_closed() -> None:
    """Also while it waits for its client; a handler whose client has come back meanwhile is released."""
    lost, socket = asyncio.Event(), Wired()
    line = SessionConnection(socket, on_lost=lost.set, on_back=lambda missed: None)
    line.allow_resume(True)
    late = Reconnection(Wired(["a word"]), 0, lambda: b"hello")
    async with asyncio.TaskGroup() as group:
        receiving = group.create_task(line.receive())
        await lost.wait()
        await line.close(1_000, "")
        line.replace(late)
    assert receiving.result() is None
    assert socket.hung_up
    line.end()
    assert late.over.is_set()
    assert not line.can_resume_after(0)


@pytest.mark.parametrize("can_resume", [True, False])
async def test_a_client_that_reads_too_slowly_loses_its_socket(can_resume: bool) -> None:
    """What it had sent is not read; its session goes on if it may come back, and else ends."""
    slow, back = Wired(["unread"]), Wired(["a word"])
    line = a_line(slow)
    line.allow_resume(can_resume)
    line.drop("too slow")
    assert slow.dropped
    slow.gone = True
    line.drop("too slow")
    assert line.is_gone() is not can_resume
    if can_resume:
        line.replace(Reconnection(back, 0, lambda: b"hello"))
    assert await line.receive() == ("a word" if can_resume else None)


async def test_a_client_that_is_away_and_left_too_much_unread_may_not_come_back() -> None:
    """What waits for one that may never come back is bounded too."""
    lost = asyncio.Event()
    line = SessionConnection(Wired(), on_lost=lost.set, on_back=lambda missed: None)
    line.allow_resume(True)
    async with asyncio.TaskGroup() as group:
        receiving = group.create_task(line.receive())
        await lost.wait()
        line.drop("too much")
    assert receiving.result() is None
    assert not line.has_message


async def test_a_client_that_said_goodbye_is_not_waited_for() -> None:
    socket = Wired(hung_up=True)
    assert await a_line(socket).receive() is None


async def test_too_long_a_gap_can_not_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SENT_FRAMES_BYTES", 10)
    line = a_line(Wired())
    for number in range(1, 6):
        await line.send(number, OutgoingFrame(b"four"))
    assert [seen for seen in range(8) if line.can_resume_after(seen)] == [3, 4, 5]


async def test_frames_before_the_opt_in_are_not_stored() -> None:
    line = SessionConnection(Wired(), on_lost=lambda: None, on_back=lambda missed: None)
    await line.send(1, OutgoingFrame(b"a"))
    assert not line.can_resume_after(1)
    line.allow_resume(True)
    assert line.can_resume_after(1)
    assert not line.can_resume_after(0)
    line.end()
    assert not line.can_resume_after(1)


# --- the secret -----------------------------------------------------------------------------------


def test_a_secret_is_good_until_the_next_one() -> None:
    password = ResumeSecret()
    assert not password.matches("")
    first = password.renew()
    assert password.matches(first)
    second = password.renew()
    assert first != second
    assert not password.matches(first)
    assert password.matches(second)
    assert not password.matches(second + "\ud800")
    password.clear()
    assert not password.matches(second)


@pytest.mark.parametrize(
    "event_id", ["", "event_r_", "event_r_xyz", "event_q_1", "event_r_-1", "event_r_1_0", "resumed"]
)
def test_only_our_own_ids_have_numbers(event_id: str) -> None:
    wire = EventRenderer(CONFIG)
    assert wire.number_of(event_id) is None
    assert wire.number_of(None) == 0
    assert wire.number_of("event_r_1f") == 31
