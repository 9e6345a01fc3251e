"""How fast one client is read: in slices, and beyond its buckets as slowly as they fill."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest

from voicepipe.ports.transcriber import Samples, TranscriberCapabilities
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.outbox import Outbox, OutgoingFrame
from voicepipe.session.read_limit import (
    AUDIO_SPEED,
    BURST_AUDIO_S,
    BURST_EVENTS,
    BYTES_PER_EVENT,
    EVENTS_PER_S,
    SHARED_TIME_SLICE_US,
    TIME_SLICE_US,
    ActiveClients,
    ReadLimit,
    TokenBucket,
)
from voicepipe.turn import events as e

CONFIG = SessionConfig.start(session_id="sess_p", model="default", voice="v", instructions="", expires_at=0)


class HandClock:
    """Microseconds, moved by hand and by the waits of the code under test."""

    def __init__(self, monkeypatch) -> None:  # type: ignore[no-untyped-def]
        self.now_us = 1_000_000
        self.n_turns = 0
        """How often another task could have run."""

        self.slept_us = 0
        real = asyncio.sleep

        async def sleep(delay_s: float) -> None:
            self.n_turns += 1
            self.slept_us += round(delay_s * 1_000_000)
            self.now_us += round(delay_s * 1_000_000)
            await real(0)

        monkeypatch.setattr("voicepipe.session.read_limit.asyncio.sleep", sleep)

    def __call__(self) -> int:
        return self.now_us


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is `now_us`: it jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now_us = 0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now_us / 1_000_000


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout:
            self._loop.now_us += max(
                1, round(timeout * 1_000_000)
            )  # a part of a microsecond would be waited for forever
        return super().select(0)


def in_virtual_time(work: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)

        async def run() -> None:
            await work(loop)

        runner.run(run())


async def read_message(read_limit: ReadLimit, message: bytes = b"{}") -> None:
    """Read a message that is here already, as the session does."""
    if not read_limit.admits_message():
        await read_limit.wait_for_message()
    read_limit.count(message)


def test_a_bucket_gives_its_size_at_once_and_then_so_much_a_second() -> None:
    """What is taken beyond it is to be waited for exactly as long as it takes to come."""
    bucket = TokenBucket(size=10, per_s=4)
    assert [bucket.take(5, 0), bucket.take(5, 0), bucket.take(2, 0)] == [-1_250_000, 0, 500_000]
    assert bucket.take(1, 500_000) == 250_000
    assert bucket.take(10, 60_000_000) == 0, "it holds no more than its size, however long nothing was taken"


def test_many_clients_share_the_time_that_all_of_them_may_take() -> None:
    """Twenty who send without a break hold the loop for 20 ms and a message each, where 5 ms each were 100 ms."""
    n_clients, message_us, active, turns_at = 20, 700, ActiveClients(), list[int]()

    async def measure(loop: VirtualLoop) -> None:
        async def read() -> None:
            read_limit = ReadLimit(lambda: loop.now_us, active)
            for _ in range(200):
                await read_message(read_limit)
                loop.now_us += message_us

        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(read()) for _ in range(n_clients)]
            while not all(client.done() for client in clients):
                turns_at.append(loop.now_us)
                await asyncio.sleep(0.001)

    in_virtual_time(measure)
    gaps = [later - earlier for earlier, later in pairwise(turns_at)][2:]  # no client waits yet in the first turns
    assert active.n_waiting == 0
    assert len(gaps) > 10
    assert max(gaps) <= SHARED_TIME_SLICE_US + n_clients * message_us


def test_a_turn_beside_many_clients_waits_once_not_at_each_of_its_steps() -> None:
    """Twenty clients send without a break; another one's turn takes thirty steps of the event loop."""
    n_clients, message_us, n_steps, step_us, active = 20, 700, 30, 200, ActiveClients()
    waited_us: list[int] = []

    async def measure(loop: VirtualLoop) -> None:
        async def read() -> None:
            read_limit = ReadLimit(lambda: loop.now_us, active)
            for _ in range(2_000):
                await read_message(read_limit)
                loop.now_us += message_us

        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(read()) for _ in range(n_clients)]
            await asyncio.sleep(1)
            began_us = loop.now_us
            for _ in range(n_steps):
                await asyncio.sleep(0)
                loop.now_us += step_us
            waited_us.append(loop.now_us - began_us - n_steps * step_us)
            assert not any(client.done() for client in clients)
            for client in clients:
                client.cancel()

    in_virtual_time(measure)
    assert waited_us[0] < 3 * SHARED_TIME_SLICE_US  # 600 ms if each step waited


def test_answers_that_wait_are_sent_in_slices() -> None:
    """A socket that takes everything at once: twenty clients hold the loop for 20 ms and a frame each."""
    n_clients, n_frames, frame_us, active = 20, 400, 700, ActiveClients()
    turns_at, sent = list[int](), [list[int]() for _ in range(n_clients)]

    async def measure(loop: VirtualLoop) -> None:
        class Taker:
            def __init__(self, numbers: list[int]) -> None:
                self.numbers = numbers

            async def send(self, number: int, outgoing: OutgoingFrame) -> None:
                self.numbers.append(number)
                loop.now_us += frame_us

        def outbox() -> Outbox:
            full = Outbox(lambda _: None, lambda: None, now_us=lambda: loop.now_us, active=active)
            for _ in range(n_frames):
                full.put(OutgoingFrame(b"{}"))
            return full

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(outbox().run(Taker(numbers))) for numbers in sent]
            while any(len(numbers) < n_frames for numbers in sent):
                turns_at.append(loop.now_us)
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()

    in_virtual_time(measure)
    gaps = [later - earlier for earlier, later in pairwise(turns_at)][2:]  # no client waits yet in the first turns
    assert sent == [[*range(1, n_frames + 1)]] * n_clients
    assert active.n_waiting == 0
    assert len(gaps) > 10
    assert max(gaps) <= SHARED_TIME_SLICE_US + n_clients * frame_us


async def test_a_client_gives_way_when_its_events_have_taken_their_time(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Buffered events are handled for 5 ms at most, then every other task has a turn."""
    clock = HandClock(monkeypatch)
    read_limit, turns_at = ReadLimit(clock), []
    for _ in range(100):
        before = clock.n_turns
        await read_message(read_limit)
        if clock.n_turns > before:
            turns_at.append(clock.now_us)
        clock.now_us += 700
    gaps = [later - earlier for earlier, later in pairwise(turns_at)]
    assert gaps
    assert max(gaps) < TIME_SLICE_US + 700
    assert clock.slept_us == 0, "it waits for nobody"


async def admit(read_limit: ReadLimit, audio_ms: float) -> None:
    """Process that much audio, as the audio input does."""
    if not read_limit.admits_audio(audio_ms):
        await read_limit.wait_for_audio()


async def test_an_event_that_was_waited_for_gives_no_way(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The event loop has turned by itself: a user who speaks in real time pays for no turn of it."""
    clock = HandClock(monkeypatch)
    read_limit = ReadLimit(clock)

    for _ in range(10_000):
        clock.now_us += 20_000
        read_limit.count(b"{}")
        assert read_limit.admits_audio(20)
        clock.now_us += 500
        assert read_limit.admits_message()
    assert clock.n_turns == 0


async def test_many_events_pass_at_once_and_the_rest_as_the_bucket_fills(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Nothing is refused: what comes beyond the bucket is read later."""
    clock = HandClock(monkeypatch)
    read_limit = ReadLimit(clock)
    for _ in range(BURST_EVENTS):
        await read_message(read_limit)
    assert clock.slept_us == 0
    for _ in range(10 * EVENTS_PER_S):
        await read_message(read_limit)
    assert 9_900_000 <= clock.slept_us <= 10_000_000


async def test_long_messages_and_long_answers_count_for_more(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """By their bytes, either way."""
    clock = HandClock(monkeypatch)
    read_limit = ReadLimit(clock)
    long = bytes(BYTES_PER_EVENT * 999)
    for _ in range(BURST_EVENTS // 1_000):
        await read_message(read_limit, long)
    await read_message(read_limit)
    assert clock.slept_us == 0
    read_limit.charge_bytes(EVENTS_PER_S * BYTES_PER_EVENT)
    await read_message(read_limit)
    assert 990_000 <= clock.slept_us <= 1_010_000


async def test_a_recording_passes_at_once_and_a_longer_one_faster_than_it_was_spoken(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The first minute is processed without waiting, the rest at ten times real time."""
    clock = HandClock(monkeypatch)
    read_limit = ReadLimit(clock)
    for _ in range(BURST_AUDIO_S * 10):
        await admit(read_limit, 100)
    assert clock.slept_us == 0
    for _ in range(60 * 10):
        await admit(read_limit, 100)
    assert abs(clock.slept_us - 60_000_000 / AUDIO_SPEED) < 100_000


async def test_messages_at_once_are_limited_like_all_others(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """What came while the reader waited has a time slice of its own. Behind a debt, the reader has to wait."""
    clock = HandClock(monkeypatch)
    read_limit = ReadLimit(clock)
    clock.now_us += 2 * TIME_SLICE_US
    assert read_limit.admits_at_once()
    read_limit.count(b"{}")
    assert read_limit.admits_message()
    assert read_limit.admits_audio(BURST_AUDIO_S * 1_000)
    assert read_limit.admits_at_once()
    assert not read_limit.admits_audio(1_000)
    assert not read_limit.admits_at_once()
    await read_limit.wait_for_audio()
    read_limit.charge(BURST_EVENTS + EVENTS_PER_S)
    assert not read_limit.admits_at_once()
    assert not read_limit.admits_message()
    await read_limit.wait_for_message()
    assert read_limit.admits_message()


async def test_a_client_that_is_gone_is_not_waited_for(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """However long it would have to wait: its session ends."""
    clock = HandClock(monkeypatch)
    read_limit = ReadLimit(clock)
    read_limit.is_gone = lambda: clock.slept_us >= 2_000_000
    await admit(read_limit, (BURST_AUDIO_S + 3_600) * 1_000)
    assert clock.slept_us == 2_000_000


class SlowReadLimit(ReadLimit):
    """Lets audio wait for four times as long as it lasts."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self._audio_ms = TokenBucket(0.001, 250)


@dataclass
class SessionTime:
    """A session's clock that goes with the one that is moved by hand."""

    clock: HandClock

    def now_ms(self) -> int:
        return self.clock.now_us // 1_000


async def events_of(question: Samples, clock: HandClock, read_limit: ReadLimit) -> list[tuple[str, int]]:
    """Return the STT's events for a question that comes at once in frames of 100 ms, by their place in the audio."""
    events: list[e.Event] = []
    capabilities = TranscriberCapabilities(rate_hz=16_000, streams=True)
    audio_input = AudioInput(CONFIG, capabilities, SessionTime(clock), events.append)  # type: ignore[arg-type]
    for first in range(0, len(question), 2_400):
        await audio_input.process(question[first : first + 2_400].astype("<i2").tobytes(), read_limit)
    audio_input.close()
    starts = [("started", event.audio_start_ms) for event in events if isinstance(event, e.SpeechStarted)]
    return starts + [("paused", event.audio_end_ms) for event in events if isinstance(event, e.SpeechPaused)]


async def test_a_held_event_loop_is_no_silence(monkeypatch, question: Samples) -> None:  # type: ignore[no-untyped-def]
    """Its timers run before it reads what has come meanwhile. Frames that are missing at the next look are silence."""
    clock, events = HandClock(monkeypatch), list[e.Event]()
    capabilities = TranscriberCapabilities(rate_hz=16_000, streams=True)
    audio_input = AudioInput(CONFIG, capabilities, SessionTime(clock), events.append)  # type: ignore[arg-type]
    read_limit = ReadLimit(clock)
    for first in range(0, len(question), 480):
        clock.now_us += 20_000
        await audio_input.process(question[first : first + 480].astype("<i2").tobytes(), read_limit)
        if any(isinstance(event, e.SpeechStarted) for event in events):
            break
    events.clear()
    clock.now_us += 400_000
    audio_input._tick()
    assert events == []
    clock.now_us += 20_000
    audio_input._tick()
    assert isinstance(events[0], e.SpeechPaused)
    audio_input.close()


class Transcript:
    """What a transcriber's stream gets, in order: ms of audio, and requests."""

    def __init__(self) -> None:
        self.calls: list[float | str] = []

    def begin(self, utterance: int) -> None:
        self.calls.append("begin")

    def push(self, samples: Samples) -> None:
        self.calls.append(len(samples) / 16)

    def flush(self, flush: int) -> None:
        self.calls.append("flush")


@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
async def test_transcriber_gets_a_quiet_room_in_larger_pieces(monkeypatch, rate_hz: int) -> None:  # type: ignore[no-untyped-def]
    """All that waits comes before whatever else happens to the stream; an open utterance comes as it arrives."""
    clock, stream = HandClock(monkeypatch), Transcript()
    capabilities = TranscriberCapabilities(rate_hz=rate_hz, streams=True)
    audio_input = AudioInput(CONFIG, capabilities, SessionTime(clock), lambda _: None)  # type: ignore[arg-type]
    audio_input.feed.attach(stream)  # type: ignore[arg-type]
    read_limit, per_16 = ReadLimit(clock), rate_hz / 16_000

    async def send(n_frames: int) -> None:
        for _ in range(n_frames):
            clock.now_us += 20_000
            await audio_input.process(bytes(960), read_limit)

    await send(32)
    assert len(stream.calls) == 2
    given_ms = sum(call for call in stream.calls if isinstance(call, float)) / per_16
    assert given_ms == pytest.approx(400, abs=3)
    audio_input.begin(1)
    assert [type(call) for call in stream.calls[2:]] == [float, str]
    del stream.calls[:]
    await send(3)
    audio_input.flush(1)
    assert [type(call) for call in stream.calls] == [float, float, float, str]
    audio_input.end(1)
    del stream.calls[:]
    await send(2)
    audio_input.commit_event(None)
    assert len(stream.calls) == 1
    audio_input.close()


async def test_how_late_a_pause_is_noticed_is_counted_in_the_audio(monkeypatch, question: Samples) -> None:  # type: ignore[no-untyped-def]
    """Frames of 500 ms, which come late by nature, make no pause look uncertain."""
    clock, found = HandClock(monkeypatch), list[list[int]]()
    for n_samples in (480, 12_000):
        events: list[e.Event] = []
        capabilities = TranscriberCapabilities(rate_hz=16_000, streams=True)
        audio_input = AudioInput(CONFIG, capabilities, SessionTime(clock), events.append)  # type: ignore[arg-type]
        read_limit = ReadLimit(clock)
        for first in range(0, len(question), n_samples):
            frame = question[first : first + n_samples]
            clock.now_us += len(frame) * 1_000_000 // 24_000
            await audio_input.process(frame.astype("<i2").tobytes(), read_limit)
        audio_input.close()
        found.append([event.noticed_ms for event in events if isinstance(event, e.SpeechPaused)])
    assert found[0] == found[1]
    assert found[0]
    assert min(found[0]) >= 80


@pytest.mark.plain
async def test_audio_that_has_to_wait_is_no_silence(monkeypatch, question: Samples) -> None:  # type: ignore[no-untyped-def]
    """A recording that is read slowly has its voices and its pauses where they are."""
    clock = HandClock(monkeypatch)
    at_once = await events_of(question, clock, ReadLimit(clock))
    assert clock.slept_us == 0
    assert len(at_once) >= 2
    assert await events_of(question, clock, SlowReadLimit(clock)) == at_once
    assert clock.slept_us > 3_900_000 * len(question) / 24_000
