"""The audio input of one session: the user's audio on its way to the turn core and to the transcriber."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from voicepipe.audio.echo_detector import EchoDetector
from voicepipe.audio.encoding import AudioEncoding
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import PcmJoiner, Samples, silence
from voicepipe.audio.silero import RATE_HZ as VAD_HZ
from voicepipe.audio.speech_events import Edge, SilenceProgress, SpeechResume, SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import VadOptions, VadSegmenter, VadState
from voicepipe.clock import SessionClock
from voicepipe.ports.transcriber import TranscriberCapabilities, TranscriptStream
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.session.item_audio import UserAudioReceiver
from voicepipe.session.overlap_report import OverlapReport
from voicepipe.session.read_limit import ReadLimit
from voicepipe.session.speech_model import SpeechSession
from voicepipe.session.utterance_audio import UtteranceAudio
from voicepipe.telemetry.journal.port import Journal
from voicepipe.turn import events as e

SLICE_MS = 100
"""A longer append is processed in pieces of this length, so that other tasks run in between."""

MAX_BYTES_AT_ONCE = 8_192
"""A longer message has no frame of audio to process at once: base64 of `SLICE_MS` at 24 kHz takes 6.4 kB."""

TICK_MS = 20
"""How often the input checks for missing frames while an utterance is open and frames are late."""

LATE_MS = 60
"""A tick that comes 60 ms late or later does not check for missing frames: the event loop was blocked."""

QUIET_MS = 250
"""While nobody speaks, the transcriber gets up to this much audio at a time."""

_RETENTION_MS = 1_500
"""Past audio of the user: that of a sound of up to a second over the agent's (`SUSTAINED_MS`), which is compared with a
second of it (`SPAN_MS`), and the time until its pause is known (up to 484 ms).
"""

_DETECTION_MS = 700
"""From where speech may begin to where it is detected."""

MAX_WAITING = 1_500
"""Audio frames and requests queued while the transcriber's stream is not open yet (30 s of 20 ms frames)."""

Post = Callable[[e.Event], None]


@dataclass(frozen=True, slots=True)
class _Begun:
    """An utterance that has begun."""

    utterance: int


@dataclass(frozen=True, slots=True)
class _Flush:
    """A request for the text so far."""

    pause: int


class TranscriberFeed:
    """The audio and the requests on their way to the transcriber. They wait while its stream is being opened."""

    def __init__(self, capabilities: TranscriberCapabilities) -> None:
        self.streams = capabilities.streams
        """Whether the transcriber takes all audio, and not only that of utterances."""

        self.rate_hz = capabilities.rate_hz
        """The rate of the audio that the transcriber is given."""

        self._stream: TranscriptStream | None = None
        # Full: the oldest is dropped, as in the stream's own buffer.
        self._waiting: deque[Samples | _Begun | _Flush] = deque(maxlen=MAX_WAITING)
        self._n_given = 0
        """Samples given to the transcriber for which no transcript has accounted yet."""

        self._quiet: list[Samples] = []
        """Audio of a quiet room that waits for more of it."""

        self._n_quiet = 0
        """Its length in samples."""

        self._resampler: Resampler | None = None
        """Converts the audio for a transcriber that does not share the speech detector's."""

    def attach(self, stream: TranscriptStream) -> None:
        """Attach the transcriber's open stream: give it what waited."""
        self._stream = stream
        while self._waiting:
            waiting = self._waiting.popleft()
            if isinstance(waiting, _Begun):
                stream.begin(waiting.utterance)
            elif isinstance(waiting, _Flush):
                stream.flush(waiting.pause)
            else:
                stream.push(waiting)

    def detach(self) -> None:
        """Detach the transcriber's stream."""
        self._stream = None
        self._waiting.clear()
        self._quiet, self._n_quiet = [], 0

    def expect_stream(self, rate_hz: int) -> None:
        """Give the next stream of the transcriber audio at this rate. Call it while none is attached."""
        self.pass_quiet()
        self._n_given = self._n_given * rate_hz // self.rate_hz
        self.rate_hz, self._resampler = rate_hz, None

    def begin(self, utterance: int) -> None:
        """Begin an utterance: its audio is given next."""
        self._resampler = None
        self.pass_quiet()
        if self._stream is None:
            self._waiting.append(_Begun(utterance))
        else:
            self._stream.begin(utterance)

    def flush(self, pause: int) -> None:
        """Request the text so far."""
        self.pass_quiet()
        if self._stream is None:
            self._waiting.append(_Flush(pause))
        else:
            self._stream.flush(pause)

    def push(self, samples: Samples, rate_hz: int, *, is_quiet: bool = False) -> None:
        """Give the transcriber audio, at its rate."""
        if self._resampler is None:
            self._resampler = Resampler(rate_hz, self.rate_hz)
        self.give(self._resampler.push(samples), is_quiet=is_quiet)

    def give(self, samples: Samples, *, is_quiet: bool = False) -> None:
        """Give the transcriber audio that has its rate. That of a quiet room waits for more, up to `QUIET_MS`: each
        message to a provider takes CPU."""
        if not len(samples):
            return
        self._n_given += len(samples)
        if not is_quiet or self._n_quiet + len(samples) > QUIET_MS * self.rate_hz // 1_000:
            self.pass_quiet()
        if is_quiet:
            self._quiet.append(samples)
            self._n_quiet += len(samples)
        else:
            self._pass_on(samples)

    def pass_quiet(self) -> None:
        """Give the transcriber the audio of a quiet room that waits."""
        if self._quiet:
            samples = np.concatenate(self._quiet)
            self._quiet, self._n_quiet = [], 0
            self._pass_on(samples)

    def _pass_on(self, samples: Samples) -> None:
        if self._stream is not None:
            self._stream.push(samples)
        else:
            self._waiting.append(samples)

    def restart(self) -> None:
        """Take audio of another rate from now on."""
        self._resampler = None

    def take_given_ms(self) -> int:
        """Return how much audio the transcriber was given since the last call."""
        given_ms = self._n_given * 1_000 // self.rate_hz
        self._n_given -= given_ms * self.rate_hz // 1_000
        return given_ms


class AudioInput:
    """Decodes the audio, detects speech, and feeds the transcriber. Only `process` may take time; other tasks run in
    between."""

    def __init__(
        self,
        config: SessionConfig,
        capabilities: TranscriberCapabilities,
        clock: SessionClock,
        post: Post,
        journal: Journal | None = None,
        recorder: UserAudioReceiver | None = None,
        speech: SpeechSession | None = None,
        scored: UtteranceAudio | None = None,
    ) -> None:
        """`journal` and `recorder` get the user's audio, `speech` and `scored` that of the utterances."""
        self.speech = speech
        """The speech-to-speech model, which gets the utterances too; None: there is none."""

        self._scored = scored

        self._recorder = recorder
        self.feed = TranscriberFeed(capabilities)
        self._clock = clock
        self._post = post
        self._journal = journal
        self._config = config
        self._joiner, self._joined = PcmJoiner(), b""
        self._segmenter = self._new_segmenter()
        self._processed_before_ms = 0
        """Audio that earlier detectors of this session processed: positions continue when the rate changes."""

        self._utterance: int | None = None
        self.latest_utterance = 0
        """The newest utterance, open or not."""

        self._began_ms = 0
        """When the utterance's audio began, in session ms."""

        self._away_ms = 0
        """How long the connection was down or the client's audio had to wait. This time does not count for the speech
        detector."""

        self._has_more = False
        """Whether audio has arrived that is not processed yet: until then, no frames are missing."""

        self._paused_at_ms: int | None = None
        self._n_known = 0
        """Samples that the client sends a second time, less than 1 millisecond."""

        self._since_ms = 0
        self._start_ms = 0
        self.echo = EchoDetector()
        """Compares the user's audio with the agent's, which is reported to it where it is sent."""

        self._overlap = OverlapReport(self.echo, post)
        self._timer: asyncio.TimerHandle | None = None
        self._tick_due_ms = 0
        self._reads_first = False
        """Whether the latest tick came late, and left the judgement to the next one."""

    # --- the client's audio -------------------------------------------------------------------

    def configure(self, config: SessionConfig) -> None:
        """Apply the session's new settings."""
        self._catch_up()
        old_hz, self._config = self._segmenter.rate_hz, config
        if config.input_format.rate_hz != old_hz:
            self._processed_before_ms += self._segmenter.received_ms
            self._segmenter = self._new_segmenter()
            self._joiner.clear()
            self.feed.restart()
        else:
            self._segmenter.configure(self._vad_options())

    def joins(self, audio: bytes) -> bool:
        """Buffer audio, to process it together with the audio that follows at once. Return False, and buffer nothing,
        when it would be more than `SLICE_MS`.

        A busy event loop reads several frames of a client at a time: together they take less CPU, so that it recovers.
        """
        form = self._config.input_format
        if len(self._joined) + len(audio) >= SLICE_MS * form.rate_hz * form.sample_bytes // 1_000:
            return False
        self._joined += audio
        self._has_more = True
        return True

    async def process_joined(self, read_limit: ReadLimit) -> None:
        """Process what `joins` has buffered, as `process` does."""
        if self._joined:
            await self.process(b"", read_limit)

    async def process(self, audio: bytes, read_limit: ReadLimit) -> None:
        """Process more of the user's audio, in the session's input format, as it came from the client, behind what was
        joined.

        Audio that arrives faster than `read_limit` allows is processed later. This wait does not count for the speech
        detector, which would take it for silence.
        """
        samples = self._next_samples(audio)
        rate_hz, n_samples, came_ms = self._segmenter.rate_hz, len(samples), self._clock.now_ms()
        n_slice, now_ms, self._has_more = SLICE_MS * rate_hz // 1_000, came_ms - self._away_ms, True
        for first in range(0, n_samples, n_slice):
            left = n_samples - first - n_slice
            piece, left = (samples[first : first + n_slice], left) if first or left > 0 else (samples, 0)
            more_ms = max(0, left) * 1_000 // rate_hz
            if self._recorder is not None:
                self._recorder.user_audio(piece, rate_hz, came_ms - more_ms)
            self._process_slice(piece, now_ms, more_ms)
            if not read_limit.admits_audio(len(piece) * 1_000 / rate_hz):
                self._fall_behind(await read_limit.wait_for_audio())
            if left > 0 and read_limit.is_gone():
                return
        self._has_more = False
        self._schedule_tick()

    def process_at_once(self, audio: bytes, read_limit: ReadLimit) -> None:
        """Process up to `SLICE_MS` of the user's audio, as `process` does. It doesn't wait: if `read_limit` requires a
        wait, it no longer `admits_at_once`."""
        samples, came_ms = self._next_samples(audio), self._clock.now_ms()
        if self._recorder is not None:
            self._recorder.user_audio(samples, self._segmenter.rate_hz, came_ms)
        self._process_slice(samples, came_ms - self._away_ms, 0)
        read_limit.admits_audio(len(samples) * 1_000 / self._segmenter.rate_hz)
        self._has_more = False
        self._schedule_tick()

    def takes_at_once(self, audio: bytes) -> bool:
        """Return whether `process_at_once` may process this audio with what is joined."""
        form = self._config.input_format
        return len(self._joined) + len(audio) <= SLICE_MS * form.rate_hz * form.sample_bytes // 1_000

    def _next_samples(self, audio: bytes) -> Samples:
        """Return the samples of the joined audio and of this, without those processed already."""
        if self._joined:
            audio, self._joined = self._joined + audio, b""
        samples = self._decode(audio)
        return self._new(samples) if self._n_known else samples

    def _process_slice(self, samples: Samples, now_ms: int, more_ms: int) -> None:
        if self._journal is not None:
            self._journal.user_audio(samples, self._segmenter.rate_hz)
        # Outside of an utterance a quiet room may wait for what follows it, and loud syllables may at any time. But
        # speech over the agent's audio is reported as it comes.
        may_defer = (
            self._overlap.reported_ms is None
            and self._config.turn_detection is not None
            and (self._utterance is None or self._segmenter.state is VadState.SPEAKING)
        )
        self._take(self._segmenter.push(samples, now_ms, more_ms=more_ms, may_defer=may_defer))
        if self._overlap.reported_ms is not None:
            self._overlap.report(self._segmenter, self._away_ms)

    def _take(self, edges: tuple[Edge, ...]) -> None:
        """Give the transcriber what the speech detector has processed, and then post what it found there."""
        if len(self._segmenter.processed):
            feed, state = self.feed, self._segmenter.state
            is_quiet = self._utterance is None and state is VadState.QUIET and self._config.turn_detection is not None
            if feed.streams and feed.rate_hz == VAD_HZ:
                feed.give(self._segmenter.resampled, is_quiet=is_quiet)
            elif feed.streams or self._utterance is not None:
                feed.push(self._segmenter.processed, self._segmenter.rate_hz, is_quiet=is_quiet)
            if self.speech is not None and self._utterance is not None:
                self.speech.push(self._segmenter.processed, self._segmenter.rate_hz)
            if self._scored is not None and self._utterance is not None:
                self._scored.push(self._segmenter.processed, self._segmenter.rate_hz)
        for edge in edges:
            self._on_edge(edge)

    def _catch_up(self) -> None:
        """Process the audio that waits, before anything else happens to the stream."""
        if self._segmenter.has_deferred:
            self._take(self._segmenter.catch_up())
        self.feed.pass_quiet()

    def _decode(self, audio: bytes) -> Samples:
        form = self._config.input_format
        return (
            self._joiner.push(audio)
            if form.name == "audio/pcm"
            else AudioEncoding(form.rate_hz, form.name).decode(audio)
        )

    def _on_edge(self, edge: Edge) -> None:
        before_ms, away_ms = self._processed_before_ms, self._away_ms
        match edge:
            case SpeechStart(onset) | SpeechResume(onset):
                self._overlap.onset_ms = onset.stream_ms
                self._start_ms = max(self._since_ms, onset.stream_ms - self._config.prefix_padding_ms, 0)
                self._post(e.SpeechStarted(onset.session_ms + away_ms, before_ms + self._start_ms))
            case SpeechStop(last_voiced, silence_ms):
                self._overlap.end(self._segmenter, last_voiced, away_ms)
                ended_ms, audio_end_ms = last_voiced.session_ms + away_ms, before_ms + last_voiced.stream_ms
                self._post(e.SpeechPaused(ended_ms, audio_end_ms, silence_ms))
                self._post(e.SilenceGrew(silence_ms))
            case SilenceProgress(silence_ms):
                self._post(e.SilenceGrew(silence_ms))

    # --- speech over the agent's audio --------------------------------------------------------

    def report_speech(self) -> None:
        """Report regularly how long the speech that has just begun lasts, until it pauses."""
        self._overlap.begin()

    # --- frames that stop coming --------------------------------------------------------------

    def _schedule_tick(self) -> None:
        """Check for missing frames while an utterance is open."""
        if self._timer is None and self._paused_at_ms is None and self._segmenter.state is not VadState.QUIET:
            now_ms = self._now_ms()
            delay_ms = max(TICK_MS, self._segmenter.late_from_ms - now_ms)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._tick)
            self._tick_due_ms = now_ms + delay_ms

    def _tick(self) -> None:
        self._timer = None
        # A loop that was blocked runs its timers before it reads the frames that have come: these are not missing.
        now_ms = self._now_ms()
        self._reads_first = now_ms - self._tick_due_ms > LATE_MS and not self._reads_first
        if not self._has_more and not self._reads_first:
            self._take(self._segmenter.tick(now_ms))
        self._schedule_tick()

    # --- a broken connection ------------------------------------------------------------------

    def pause(self) -> None:
        """Pause while the connection is down: missing audio is no silence, since the client will send it later."""
        self._paused_at_ms = self._clock.now_ms()
        self.close()

    def resume(self) -> None:
        """Continue: the client is back, and sends from `received_ms` on."""
        self._fall_behind(self._clock.now_ms() - (self._paused_at_ms or 0))
        self._paused_at_ms = None
        self._schedule_tick()

    def go_on(self, received_ms: int) -> None:
        """Count the user's audio from there: another process has processed what came before."""
        self._processed_before_ms = received_ms

    @property
    def received_ms(self) -> int:
        """Return how much of the user's audio has come, in ms."""
        return self._processed_before_ms + self._segmenter.received_ms

    def restart(self) -> int:
        """Expect the user's audio from a position on, in ms, and return it: the audio received, in whole
        milliseconds."""
        self._joiner.clear()
        self._joined, self._has_more = b"", False
        self._n_known = (
            self._segmenter.received_samples - self._segmenter.received_ms * self._segmenter.rate_hz // 1_000
        )
        return self._processed_before_ms + self._segmenter.received_ms

    def _new(self, samples: Samples) -> Samples:
        """Return the samples without those processed already."""
        known = min(self._n_known, len(samples))
        self._n_known -= known
        return samples[known:]

    def _now_ms(self) -> int:
        return self._clock.now_ms() - self._away_ms

    def _fall_behind(self, late_ms: int) -> None:
        if late_ms:
            self._away_ms += late_ms
            self.echo.shift(late_ms)

    def close(self) -> None:
        """Stop checking for missing frames."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- the core's commands --------------------------------------------------------------------

    def begin(self, utterance: int) -> None:
        """Count the user's audio as this utterance, with the padding kept before speech."""
        self._catch_up()
        self._utterance = utterance
        self._overlap.earlier_ms = 0
        self.latest_utterance, self._began_ms = utterance, self._clock.now_ms()
        manual = self._config.turn_detection is None
        self._since_ms = self._segmenter.received_ms if manual else self._start_ms
        self.feed.begin(utterance)
        padding = self._segmenter.since(self._start_ms) if not manual else silence(0)
        if not self.feed.streams and not manual:
            self.feed.push(padding, self._segmenter.rate_hz)
        if self.speech is not None:
            self.speech.begin(padding, self._segmenter.rate_hz)
        if self._scored is not None:
            self._scored.begin(padding, self._segmenter.rate_hz)

    def hidden_ms(self, connecting_ms: int) -> int:
        """Return how much of a connection attempt that is over now was over when the current utterance began; all of
        it without an utterance."""
        since_ms = self._clock.now_ms() - self._began_ms if self.in_utterance else 0
        return max(0, connecting_ms - since_ms)

    @property
    def in_utterance(self) -> bool:
        """Return whether the client's audio belongs to an utterance."""
        return self._utterance is not None

    def end(self, utterance: int) -> None:
        """End a committed utterance; the next speech starts anew."""
        self._catch_up()
        if self._utterance == utterance:
            self._utterance = None
        self._since_ms = self._segmenter.received_ms
        self._segmenter.end_turn()

    def discard(self, utterance: int) -> None:
        """Discard an utterance; the next speech starts anew, and so does its transcript."""
        self._overlap.reported_ms = None
        self.end(utterance)
        if self.speech is not None:
            self.speech.drop()

    def flush(self, pause: int) -> None:
        """Request the text so far from the transcriber."""
        self._catch_up()
        self.feed.flush(pause)

    def drop(self) -> None:
        """Drop the audio that is not committed."""
        self._catch_up()
        if self.speech is not None:
            self.speech.drop()
        self._utterance = None
        self._joiner.clear()
        self._since_ms = self._segmenter.received_ms
        self._segmenter.end_turn()

    def commit_silence(self) -> e.SilenceCommitted:
        """End the audio received so far; the padding of the next speech doesn't reach back into it."""
        self._since_ms = self._segmenter.received_ms
        return e.SilenceCommitted(self._processed_before_ms + self._segmenter.received_ms)

    def commit_event(self, event_id: str | None) -> e.CommitRequested:
        """Return the event for a commit at this instant."""
        self._catch_up()
        last = self._segmenter.last_voiced()
        buffered_ms = self._segmenter.received_ms - self._since_ms
        if last is None:
            return e.CommitRequested(event_id, buffered_ms, None)
        return e.CommitRequested(
            event_id, buffered_ms, last.session_ms + self._away_ms, self._processed_before_ms + last.stream_ms
        )

    # --- settings -----------------------------------------------------------------------------

    def _new_segmenter(self) -> VadSegmenter:
        return VadSegmenter(self._config.input_format.rate_hz, self._vad_options(), vad=self._config.vad)

    def _vad_options(self) -> VadOptions:
        keep_ms = max(_RETENTION_MS, self._config.prefix_padding_ms + _DETECTION_MS)
        return VadOptions(threshold=self._config.vad_threshold, keep_ms=keep_ms)
