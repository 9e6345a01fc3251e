"""The audio input of a session: what it measures and passes on, and when it looks for missing frames."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from tests.session.test_endpoint_scoring import EventJournal
from tests.session.test_observers import session
from voicepipe.audio import silero
from voicepipe.audio.encoding import AudioEncoding, TelephoneFormat
from voicepipe.audio.g711 import decode_mulaw, encode_mulaw
from voicepipe.audio.resample import Resampler
from voicepipe.ports.transcriber import Samples, TranscriberCapabilities, TranscriptionOptions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.audio_input import AudioInput
from voicepipe.session.ports import SessionPorts
from voicepipe.session.read_limit import ReadLimit
from voicepipe.session.recorded_items import RecordedItems
from voicepipe.session.transcription import SessionTranscription
from voicepipe.testing.fakes.cues import LlmCue, SttCue
from voicepipe.testing.fakes.ports import FakeModel, FakeTranscriber
from voicepipe.turn import events as e
from voicepipe.values import replace

CONFIG = SessionConfig.start(session_id="sess_a", model="default", voice="v", instructions="", expires_at=0)
STREAMS = TranscriberCapabilities(rate_hz=16_000, streams=True)


class Hand:
    """A session's clock that is moved by hand."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms


class Given:
    """What the transcriber got, in samples."""

    n_samples = 0

    def begin(self, utterance: int) -> None: ...

    def flush(self, flush: int) -> None: ...

    def push(self, samples: Samples) -> None:
        self.n_samples += len(samples)


async def say(
    audio_input: AudioInput, clock: Hand, question: Samples, *, until: type[e.Event], events: list[Any]
) -> int:
    """Send frames of 20 ms until an event comes; return how many."""
    read_limit = ReadLimit()
    for first in range(0, len(question), 480):
        clock.ms += 20
        await audio_input.process(question[first : first + 480].astype("<i2").tobytes(), read_limit)
        if any(isinstance(event, until) for event in events):
            return first // 480 + 1
    raise AssertionError(f"no {until.__name__}")


async def test_missing_frames_are_looked_for_when_the_next_one_is_late(question: Samples) -> None:
    """Not every 20 ms: the timer of an utterance is due when frames would be missing for longer than they may. Then all
    speech that waited is given to the transcriber, and the pause has begun."""
    clock, events, given = Hand(), list[Any](), Given()
    audio_input = AudioInput(CONFIG, STREAMS, clock, events.append)  # type: ignore[arg-type]
    audio_input.feed.attach(given)  # type: ignore[arg-type]
    n_frames = await say(audio_input, clock, question, until=e.SpeechStarted, events=events)
    timer = audio_input._timer
    assert timer is not None
    assert audio_input._tick_due_ms - clock.ms > 200
    rest, n_waited = question[n_frames * 480 :], 0
    for first in range(0, 60 * 480, 480):
        clock.ms += 20
        await audio_input.process(rest[first : first + 480].astype("<i2").tobytes(), ReadLimit())
        n_frames, n_waited = n_frames + 1, n_waited + audio_input._segmenter.has_deferred
        if n_waited and audio_input._segmenter.has_deferred:
            break
    assert audio_input._timer is timer
    events.clear()
    clock.ms += 201
    audio_input._tick()
    assert [type(event) for event in events[:2]] == [e.SpeechPaused, e.SilenceGrew]
    assert given.n_samples >= n_frames * 320 - 64  # the rest is in the resampler
    audio_input.close()


@pytest.mark.parametrize("padding_ms", [300, 3_000])
async def test_an_stt_for_files_gets_all_of_the_padding_before_speech(question: Samples, padding_ms: int) -> None:
    """Also of more padding than the client requested at first."""
    clock, events, given = Hand(), list[Any](), Given()
    audio_input = AudioInput(CONFIG, replace(STREAMS, streams=False), clock, events.append)  # type: ignore[arg-type]
    audio_input.feed.attach(given)  # type: ignore[arg-type]
    detection = {"type": "server_vad", "prefix_padding_ms": padding_ms}
    audio_input.configure(CONFIG.merged({"type": "realtime", "audio": {"input": {"turn_detection": detection}}}))
    quiet = np.zeros(4 * 24_000, dtype=np.int16)
    await say(audio_input, clock, np.concatenate((quiet, question)), until=e.SpeechStarted, events=events)
    (started,) = (event for event in events if isinstance(event, e.SpeechStarted))
    audio_input.begin(1)
    padded_ms = audio_input.received_ms - started.audio_start_ms
    assert padded_ms >= padding_ms
    assert given.n_samples >= padded_ms * 16 - 64  # the rest is in the resampler
    audio_input.close()


async def test_the_vad_of_the_agent_stays_when_the_format_changes(
    question: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Speech is found before and after, and the model of the other VAD is not loaded."""
    monkeypatch.setattr(silero, "shared", lambda: pytest.fail("loaded"))
    clock, events, config = Hand(), list[Any](), replace(CONFIG, vad="webrtc")
    audio_input = AudioInput(config, STREAMS, clock, events.append)  # type: ignore[arg-type]
    await say(audio_input, clock, question, until=e.SpeechStarted, events=events)
    events.clear()
    audio_input.configure(config.merged({"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}))
    by_phone = encode_mulaw(Resampler(24_000, 8_000).push(question))
    for first in range(0, len(by_phone), 160):
        clock.ms += 20
        await audio_input.process(by_phone[first : first + 160], ReadLimit())
    assert any(isinstance(event, e.SpeechStarted) for event in events)
    audio_input.close()


async def test_joined_audio_is_processed_once_and_in_order(question: Samples) -> None:
    """Up to 100 ms at a time. The events and the transcriber's audio are those of single frames."""
    clock, read_limit, alone, joined = Hand(), ReadLimit(), list[Any](), list[Any]()
    got_alone, got_joined = Given(), Given()
    one = AudioInput(CONFIG, STREAMS, clock, alone.append)  # type: ignore[arg-type]
    many = AudioInput(CONFIG, STREAMS, clock, joined.append)  # type: ignore[arg-type]
    one.feed.attach(got_alone)  # type: ignore[arg-type]
    many.feed.attach(got_joined)  # type: ignore[arg-type]
    frames = [question[first : first + 480].astype("<i2").tobytes() for first in range(0, len(question), 480)]
    frames, n_processed = frames[: len(frames) // 4 * 4], 0
    for number, frame in enumerate(frames):
        clock.ms += 80 * (number % 4 == 0)
        await one.process(frame, read_limit)
        if number % 4 == 3 or not many.joins(frame):
            await many.process(frame, read_limit)
            n_processed += 1
    assert n_processed == len(frames) // 4
    assert [type(event) for event in joined if not isinstance(event, e.SilenceGrew)] == [
        type(event) for event in alone if not isinstance(event, e.SilenceGrew)
    ]
    assert many.received_ms == one.received_ms
    assert abs(got_joined.n_samples - got_alone.n_samples) <= 1_600
    assert not many.joins(bytes(4_800))
    one.close()
    many.close()


async def test_frames_that_are_processed_at_once_are_those_of_process(question: Samples) -> None:
    """The same events, and the same audio for the transcriber."""
    clock, events, given = Hand(), [list[Any](), list[Any]()], [Given(), Given()]
    inputs = [AudioInput(CONFIG, STREAMS, clock, each.append) for each in events]  # type: ignore[arg-type]
    for audio_input, got in zip(inputs, given, strict=True):
        audio_input.feed.attach(got)  # type: ignore[arg-type]
    waiting, at_once = inputs
    for first in range(0, len(question), 480):
        clock.ms += 20
        frame = question[first : first + 480].astype("<i2").tobytes()
        await waiting.process(frame, ReadLimit())
        assert at_once.takes_at_once(frame)
        at_once.process_at_once(frame, ReadLimit())
    assert events[0] == events[1]
    assert any(isinstance(event, e.SpeechPaused) for event in events[1])
    assert given[0].n_samples == given[1].n_samples
    assert at_once.received_ms == waiting.received_ms
    for audio_input in inputs:
        audio_input.close()


async def test_100_ms_are_processed_at_once_and_no_more() -> None:
    """With what is joined."""
    audio_input = AudioInput(CONFIG, STREAMS, Hand(), list[Any]().append)  # type: ignore[arg-type]
    assert audio_input.takes_at_once(bytes(4_800))
    assert not audio_input.takes_at_once(bytes(4_802))
    assert audio_input.joins(bytes(960))
    assert not audio_input.takes_at_once(bytes(3_842))
    audio_input.process_at_once(bytes(3_840), ReadLimit())
    assert audio_input.received_ms == 100


async def test_a_client_that_comes_back_sends_joined_audio_again() -> None:
    """It was not received: `restart` tells the client to go on before it."""
    audio_input = AudioInput(CONFIG, STREAMS, Hand(), list[Any]().append)  # type: ignore[arg-type]
    await audio_input.process(bytes(960), ReadLimit())
    assert audio_input.joins(bytes(960))
    assert audio_input.restart() == 20
    await audio_input.process_joined(ReadLimit())
    assert audio_input.received_ms == 20


class BurstingClient:
    """A client whose messages have all come at once."""

    hung_up = True
    gone = False

    def __init__(self, *messages: dict[str, str]) -> None:
        self._messages = [json.dumps(message) for message in messages]

    @property
    def has_message(self) -> bool:
        return bool(self._messages)

    async def receive(self) -> str | None:
        return self._messages.pop(0) if self._messages else None

    async def send(self, frame: bytes) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...

    def abort(self) -> None: ...


@pytest.mark.plain
async def test_what_a_client_says_behind_waiting_audio_counts_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three frames that wait are processed as one, before the commit behind them; the fourth is processed at once."""
    processed, journal = list[int](), EventJournal()
    process = AudioInput.process

    async def counted(self: AudioInput, audio: bytes, read_limit: ReadLimit) -> None:
        before_ms = self.received_ms
        await process(self, audio, read_limit)
        processed.append(self.received_ms - before_ms)

    monkeypatch.setattr(AudioInput, "process", counted)
    append = {"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(960)).decode()}
    client = BurstingClient(append, append, append, {"type": "input_audio_buffer.commit"}, append)
    made = session(FakeModel(LlmCue()), SessionPorts(open_journal=lambda opening: journal))
    await made.run(client)
    assert processed == [60, 20]
    assert [each.buffered_ms for each in journal.events if isinstance(each, e.CommitRequested)] == [60]


TELEPHONE = TranscriberCapabilities(
    rate_hz=16_000, streams=True, telephone=frozenset[TelephoneFormat]({"audio/pcmu", "audio/pcma"})
)


def encoding_of(config: SessionConfig) -> AudioEncoding:
    return AudioEncoding(config.input_format.rate_hz, config.input_format.name)


def in_format(name: str) -> SessionConfig:
    return CONFIG.merged({"type": "realtime", "audio": {"input": {"format": {"type": name}}}})


@pytest.mark.parametrize("telephone", ["audio/pcmu", "audio/pcma"])
async def test_a_telephone_is_transcribed_at_8_khz_where_the_stt_takes_it(
    question: Samples, telephone: TelephoneFormat
) -> None:
    """From the start of the session, and each sample as it came."""
    transcriber = FakeTranscriber(capabilities=TELEPHONE)
    audio_input = AudioInput(in_format(telephone), TELEPHONE, Hand(), lambda event: None)  # type: ignore[arg-type]
    transcription = SessionTranscription(
        transcriber, "m", in_format(telephone), audio_input, lambda event: None, lambda event: None
    )
    encoding = encoding_of(in_format(telephone))
    async with transcriber.open(transcription.options) as stream:
        audio_input.feed.attach(stream)
        audio = encoding.encode(Resampler(24_000, 8_000).push(question))
        for first in range(0, len(audio), 160):
            await audio_input.process(audio[first : first + 160], ReadLimit())
        audio_input._catch_up()
        assert transcription.options.telephone == telephone
        assert encoding.encode(stream.samples) == audio
    assert audio_input.feed.take_given_ms() == len(audio) // 8
    audio_input.close()


@pytest.mark.parametrize(("before", "after"), [("audio/pcm", "audio/pcmu"), ("audio/pcma", "audio/pcm")])
async def test_another_format_opens_another_stream_at_its_rate(before: str, after: str) -> None:
    """Until it is open, the old one gets its own rate."""
    transcriber = FakeTranscriber(capabilities=TELEPHONE)
    audio_input = AudioInput(in_format(before), TELEPHONE, Hand(), lambda event: None)  # type: ignore[arg-type]
    transcription = SessionTranscription(
        transcriber, "m", in_format(before), audio_input, lambda event: None, lambda event: None
    )

    async def pushed(config: SessionConfig) -> int:
        """Return how many samples of the second half of a second the stream gets."""
        async with transcriber.open(transcription.options) as stream:
            audio_input.feed.attach(stream)
            silent = encoding_of(config).silence(encoding_of(config).bytes_per_ms * 500)
            await audio_input.process(silent, ReadLimit())
            audio_input._catch_up()
            n_before = len(stream.samples)
            await audio_input.process(silent, ReadLimit())
            audio_input._catch_up()
            return len(stream.samples) - n_before

    rates = {"audio/pcm": 16_000}
    assert await pushed(in_format(before)) == rates.get(before, 8_000) // 2
    audio_input.configure(in_format(after))
    transcription.configure(in_format(after))
    assert await pushed(in_format(after)) == rates.get(before, 8_000) // 2
    transcription.renew()
    assert await pushed(in_format(after)) == rates.get(after, 8_000) // 2
    audio_input.close()


async def test_a_telephone_is_resampled_for_an_stt_without_8_khz() -> None:
    transcription = SessionTranscription(
        FakeTranscriber(capabilities=STREAMS),
        "m",
        in_format("audio/pcmu"),
        AudioInput(in_format("audio/pcmu"), STREAMS, Hand(), lambda event: None),  # type: ignore[arg-type]
        lambda event: None,
        lambda event: None,
    )
    assert transcription.options.telephone is None
    assert STREAMS.push_hz(transcription.options) == 16_000


async def test_a_recording_of_a_telephone_is_transcribed_at_8_khz_too(question: Samples) -> None:
    """An item of the client with a whole recording, in the session's input format."""
    transcriber = FakeTranscriber(SttCue(text="No."), capabilities=TELEPHONE)
    recording = encoding_of(in_format("audio/pcmu")).encode(Resampler(24_000, 8_000).push(question))
    options = TranscriptionOptions(model="m", telephone="audio/pcmu")
    items = RecordedItems(transcriber, lambda event: None)
    assert await items._text(options, decode_mulaw(recording), 8_000) == ("fake/stt", "No.", None)
    received = await transcriber.script.nth(0)
    assert np.array_equal(received.samples[: len(recording)], decode_mulaw(recording))
