"""Voice activity detection: find where one user's speech starts, pauses and resumes.

Pure: samples and `now_ms` go in, edges come out. A cheap gate decides whether the VAD model runs at all. The VAD
model (Silero) decides whether a window is speech. The level of the window shows whether the speech is the user's. The
levels of the samples show where the speech began and ended. Silence is counted in samples, from the last voiced one;
when frames stop arriving it is counted by the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import numpy as np
import webrtcvad  # type: ignore[import-untyped]

from voicepipe.audio import levels, silero
from voicepipe.audio.classifier import FRAME_SAMPLES, Classifier, Vad
from voicepipe.audio.history import AudioHistory, RingBuffer, StreamClock
from voicepipe.audio.near_field import NearField
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, mean_squares, peak, silence
from voicepipe.audio.silero import RATE_HZ, Silero
from voicepipe.audio.speech_bounds import SpeechBounds
from voicepipe.audio.speech_events import Edge, Instant, SilenceProgress, SpeechResume, SpeechStart, SpeechStop
from voicepipe.audio.voiced_frames import VoicedFrames
from voicepipe.audio.window_stream import WindowStream
from voicepipe.errors import ConfigError

_GATE_MODE: Final = 3
"""webrtcvad's strictest mode. Mode 2 opens on plain room tone, and found no speech earlier that mode 3 had missed. Of
117 clips none was missed. Behind the pre-roll no speech was found more than 44 ms later than without any gate."""

_HANG_FRAMES: Final = 15
"""300 ms without a voiced frame close the gate."""

_PER_MS: Final = RATE_HZ // 1_000
_STEP_MS: Final = FRAME_SAMPLES // _PER_MS

_SLICE_MS: Final = 100
"""Longer pushes are processed in slices of this length, so that one burst does not set the size of every buffer. A
session pushes no more at once."""

_MAX_SLICE_SAMPLES: Final = (_SLICE_MS + 50) * _PER_MS
"""The longest slice after the resampler has added what it held back."""

_DEFERRED_MS: Final = 100
"""Calm audio is processed in pieces of this length, which takes half the CPU of 20 ms at a time."""

_LOUD_MS: Final = 100
"""Loud audio in mid-speech is processed in pieces of this length. The first frame that is no louder than the end of a
word is processed at once: the STT answers as soon as it gets the silence after the last word."""

_NOTHING: Final = silence(0)

_FAR_MS: Final = 200
"""Speech that was not near for this long has paused: a speaker further away goes on. With the 300 ms over which
the near field is computed, near speech may fade for about 500 ms before that."""

_SURE_ABOVE: Final = 0.15
_BESIDE_SURE: Final = 0.1
"""A window this far above the threshold starts speech together with a neighbour that is only not silent: of "yeah" on
a telephone the VAD model is often sure in one window of 32 ms.

No further clip of the 26 of noise starts speech. Of 396 copies of those without babble, from -12 to 20 dB, 8 do at
8 kHz (7 without this rule) and 9 at 24 kHz (6). A less sure window, or a neighbour of any probability, starts more.
"""

_RISE_MS: Final = 120
"""The VAD model needs 60 to 120 ms to detect speech. While the level rises, `SilenceProgress` is held back for this
long, so that no turn ends on the first syllable of its next word. Noise that is not speech delays the edge by no more
than this.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class VadOptions:
    """Thresholds of speech and silence."""

    threshold: float = 0.5
    """The VAD model's probability from which a window is speech, 0 to 1. Higher needs louder, clearer speech."""

    min_speech_ms: int = 60
    """Net speech before `SpeechStart`. Shorter reacts to clicks, longer misses "yes"."""

    pause_ms: int = 80
    """Silence before `SpeechStop`. Shorter pauses lie inside words."""

    max_pause_ms: int = 30_000
    """After this much silence the pause is over, and the next speech starts instead of resuming."""

    jitter_ms: int = 200
    """Frames may be this late before their absence counts as silence."""

    keep_ms: int = 2_000
    """How much audio stays readable with `since`: the audio before speech starts, and the time to detect it."""

    speech_from: float = field(init=False)
    """The probability that starts speech. Audio rejected by the gate has 0: silence at any threshold."""

    sure_from: float = field(init=False)
    """The probability at which one window starts speech with a weak neighbour."""

    silence_below: float = field(init=False)
    """The probability that ends speech: 0.15 lower, as the model's authors do, so that the state does not flicker."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold: expected 0 to 1, got {self.threshold}")
        for name in ("min_speech_ms", "pause_ms", "max_pause_ms", "jitter_ms", "keep_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected a positive number of ms, got {getattr(self, name)}")
        speech_from = max(self.threshold, 0.01)
        object.__setattr__(self, "speech_from", speech_from)
        object.__setattr__(self, "sure_from", speech_from + _SURE_ABOVE)
        object.__setattr__(self, "silence_below", max(self.threshold - 0.15, 0.01))


class EnergyGate:
    """A cheap gate in front of the VAD model: opens at once on a voiced frame, closes after a while without one."""

    def __init__(self) -> None:
        self._is_speech = webrtcvad.Vad(_GATE_MODE).is_speech
        self._unvoiced = 0
        self.open = False
        self.voiced = False
        """Whether the latest frame is voiced."""

    def push(self, frame: bytes, *, hold: bool) -> bool:
        """Process one frame of 20 ms, PCM16 at 16 kHz; `hold` forbids closing. Returns whether the gate is open."""
        self.voiced = self._is_speech(frame, RATE_HZ)
        if self.voiced:
            self._unvoiced = 0
            self.open = True
        else:
            self._unvoiced += 1
            if self._unvoiced >= _HANG_FRAMES and not hold:
                self.open = False
        return self.open


def _classifier(
    vad: Vad, gate: EnergyGate, near_field: NearField, buffer: RingBuffer, model: Silero | None
) -> Classifier:
    if vad == "webrtc":
        return VoicedFrames(lambda: gate.voiced, near_field.rises)
    return WindowStream(buffer, model or silero.shared())


class VadState(Enum):
    """The state of the user's speech."""

    QUIET = auto()
    SPEAKING = auto()
    PAUSED = auto()


class VadSegmenter:
    """Detects one user's speech. The same samples give the same edges, however they were cut into pushes.

    Costs about 1 to 3 ms of CPU per second of audio, 3 ms for a burst of 1 second. Feed longer bursts in slices,
    with `more_ms`, where the event loop must not be blocked longer.
    """

    def __init__(
        self,
        rate_hz: int,
        options: VadOptions | None = None,
        *,
        gate: EnergyGate | None = None,
        model: Silero | None = None,
        vad: Vad = "silero",
    ) -> None:
        """`model` stands in for the shared one of `silero`."""
        self.rate_hz = rate_hz
        self.options = options or VadOptions()
        self.state = VadState.QUIET
        self._gate = gate or EnergyGate()
        self._resampler = Resampler(rate_hz, RATE_HZ)
        self._received = 0
        self._recent = AudioHistory(self._retained_samples)
        """What was processed; what is deferred follows it."""

        self._buffer = RingBuffer(levels.LOOK_BACK_SAMPLES + 2 * _MAX_SLICE_SAMPLES, _MAX_SLICE_SAMPLES)
        self._speech_bounds = SpeechBounds(self._buffer)
        self._near_field = NearField()
        self._windows = _classifier(vad, self._gate, self._near_field, self._buffer, model)
        self._window_samples = self._windows.window_samples
        self._window_ms = self._window_samples // _PER_MS
        self._stream_clock = StreamClock()
        self._now_ms: int | None = None
        self._deferred: list[Samples] = []
        """Audio that was received and not processed, at most `_DEFERRED_MS`."""

        self._deferred_samples = 0
        self._max_deferred_samples, self._loud_samples = _DEFERRED_MS * rate_hz // 1_000, _LOUD_MS * rate_hz // 1_000
        self.processed = self.resampled = _NOTHING
        """The audio that the latest `push`, `tick` or `catch_up` processed, as it came and at 16 kHz."""

        # Positions on the buffer, which lags the user's audio by the resampler's delay. `_lead` samples of silence in
        # front align the ends of frames with the ends of the client's frames, so that no frame waits for the next one.
        self._lead = self._resampler.delay_samples
        self._buffer.append(silence(self._lead))
        self._processed = 0
        self._speech_end = 0
        self._near_end = 0
        self._not_before = 0
        self._probability = self._probability_before = 0.0
        self._net_ms = 0
        self._pause = Instant(0, 0)
        self._silence_ms = 0
        self._gap_ms = 0

    def configure(self, options: VadOptions) -> None:
        """Apply other options to the audio that follows."""
        self.options = options
        self._recent.keep_samples = self._retained_samples

    @property
    def _retained_samples(self) -> int:
        return self.options.keep_ms * self.rate_hz // 1_000

    @property
    def received_ms(self) -> int:
        """Return how much of the user's audio has arrived."""
        return self._received * 1_000 // self.rate_hz

    @property
    def received_samples(self) -> int:
        """Return how much of the user's audio has arrived, in samples at `rate_hz`."""
        return self._received

    def instant(self, stream_ms: int) -> Instant:
        """Return a position in the user's audio on both time scales."""
        return Instant(stream_ms, self._stream_clock.session_ms(stream_ms))

    def since(self, stream_ms: int) -> Samples:
        """Return the user's audio from a position on, int16 at `rate_hz`; at least from `keep_ms` before the newest
        push.
        """
        first = max(0, stream_ms) * self.rate_hz // 1_000
        if not self._deferred:
            return self._recent.since(first)
        return np.concatenate((self._recent.since(first), *self._deferred))[max(0, first - self._recent.end) :]

    def last_voiced(self) -> Instant | None:
        """Return the end of the latest speech so far, or None when there was none since `end_turn`."""
        match self.state:
            case VadState.SPEAKING:
                return self._instant_at(self._current_voice_end())
            case VadState.PAUSED:
                return self._pause
            case VadState.QUIET:
                return None

    def end_turn(self) -> None:
        """End the user's turn: the next speech starts anew, at the newest sample at the earliest."""
        self.state = VadState.QUIET
        self._net_ms = 0
        self._not_before = self._newest if self._deferred else self._processed

    def push(self, samples: Samples, now_ms: int, *, more_ms: int = 0, may_defer: bool = False) -> tuple[Edge, ...]:
        """Process the next samples, int16, (n_samples,) at `rate_hz`, that arrived at `now_ms`.

        `more_ms` is how much audio of the same arrival is still to be pushed. With `may_defer`, up to 100 ms of audio
        no louder than the room, or of loud speech, may wait for what follows it: the edges are the same.
        Returns the edges in order. The edges of a long push are all returned here, with their positions.
        """
        edges: list[Edge] = []
        self.processed = self.resampled = _NOTHING
        since_ms = now_ms - len(samples) * 1_000 // self.rate_hz - more_ms
        if self._now_ms is not None and since_ms - self._now_ms > self.options.jitter_ms:
            self._count_absence(since_ms - self._now_ms, edges)
        self._received += len(samples)
        self._now_ms = now_ms
        self._stream_clock.arrived(self._received * 1_000 // self.rate_hz + more_ms, now_ms)
        if self.state is VadState.PAUSED:
            self._count_gap(now_ms - more_ms)
        if may_defer and self._is_deferrable(samples):
            self._deferred.append(samples)
            self._deferred_samples += len(samples)
        else:
            self._process(samples, edges)
        return tuple(edges)

    @property
    def has_deferred(self) -> bool:
        """Return whether audio was received that is not processed."""
        return bool(self._deferred)

    def catch_up(self) -> tuple[Edge, ...]:
        """Process the deferred audio."""
        edges: list[Edge] = []
        self.processed = self.resampled = _NOTHING
        self._process(_NOTHING, edges)
        return tuple(edges)

    def _is_deferrable(self, samples: Samples) -> bool:
        """Return whether the samples may wait: nothing has begun, and they are no louder than the room; or the user
        speaks, and they are as loud as the middle of a word.
        """
        n_samples = self._deferred_samples + len(samples)
        if self.state is VadState.QUIET:
            if self._gate.open or n_samples >= self._max_deferred_samples or not len(samples):
                return False
            return peak(samples) <= self._near_field.noise_peak
        if self.state is VadState.PAUSED or n_samples >= self._loud_samples or not len(samples):
            return False
        return self._probability >= self.options.speech_from and peak(samples) >= self._near_field.user_peak

    def _process(self, samples: Samples, edges: list[Edge]) -> None:
        """Process the deferred audio and the samples after it."""
        if self._deferred:
            samples = np.concatenate((*self._deferred, samples))
            self._deferred.clear()
            self._deferred_samples = 0
        self._recent.append(samples)
        slice_samples = max(1, _SLICE_MS * self.rate_hz // 1_000)
        if 0 < len(samples) <= slice_samples and not len(self.processed):  # nearly always: it takes less CPU
            self.processed, self.resampled = samples, self._resampler.push(samples)
            self._buffer.append(self.resampled)
            self._process_frames(edges)
            return
        resampled = [self.resampled] if len(self.resampled) else []
        for first in range(0, len(samples), slice_samples):
            resampled.append(self._resampler.push(samples[first : first + slice_samples]))
            self._buffer.append(resampled[-1])
            self._process_frames(edges)
        self.processed = np.concatenate((self.processed, samples)) if len(self.processed) else samples
        self.resampled = resampled[0] if len(resampled) == 1 else np.concatenate((_NOTHING, *resampled))

    def tick(self, now_ms: int) -> tuple[Edge, ...]:
        """Detect missing samples, and process those that wait for them; call it every 20 ms or so from `late_from_ms`
        on. Returns no edges while the samples are not late.
        """
        edges: list[Edge] = []
        self.processed = self.resampled = _NOTHING
        if self._now_ms is not None and now_ms - self._now_ms > self.options.jitter_ms:
            self._count_absence(now_ms - self._now_ms, edges)
        return tuple(edges)

    # --- missing frames -----------------------------------------------------------------------

    @property
    def late_from_ms(self) -> int:
        """Return from when on the next samples are late; 0 before the first."""
        return 0 if self._now_ms is None else self._now_ms + self.options.jitter_ms + 1

    def _count_absence(self, absent_ms: int, edges: list[Edge]) -> None:
        """Count the time since the last arrival as silence: it exceeds the jitter allowance."""
        if self._deferred and self.state is VadState.SPEAKING:
            self._process(_NOTHING, edges)
        self._net_ms = 0
        if self.state is VadState.SPEAKING:
            self._begin_pause(self._current_voice_end(), self.received_ms + absent_ms, edges)
            # The audio after the gap does not continue the audio before it.
            self._not_before = self._newest
        elif self.state is VadState.PAUSED:
            self._grow(self.received_ms - self._pause.stream_ms + absent_ms, edges)

    def _count_gap(self, now_ms: int) -> None:
        """Update how much of a pause's silence was never sent as samples, after frames were missing.

        Audio that was only late arrives faster than real time and reduces the gap to 0, so it counts once.
        """
        gap_ms = now_ms - self.received_ms - (self._pause.session_ms - self._pause.stream_ms)
        self._gap_ms = gap_ms if gap_ms > self.options.jitter_ms else 0

    # --- frames -------------------------------------------------------------------------------

    def _process_frames(self, edges: list[Edge]) -> None:
        """Process the complete frames of the buffer, 20 ms each."""
        n_frames = (self._buffer.end - self._processed) // FRAME_SAMPLES
        if n_frames <= 0:
            return
        samples = self._buffer.read(self._processed, self._processed + n_frames * FRAME_SAMPLES)
        pcm, n_bytes = samples.tobytes(), FRAME_SAMPLES * samples.itemsize
        for number, power in enumerate(mean_squares(samples, FRAME_SAMPLES)):
            self._process_frame(pcm[number * n_bytes : (number + 1) * n_bytes], power, edges)

    def _process_frame(self, frame: bytes, power: float, edges: list[Edge]) -> None:
        """Pass the next 20 ms of the buffer to the gate, and on to the VAD model when the gate is open."""
        self._processed += FRAME_SAMPLES
        hold = self._probability >= self.options.silence_below
        self._near_field.push(power, speech=hold)
        if self._near_field.near:
            self._near_end = self._processed
        if self._gate.push(frame, hold=hold):
            self._classify_windows(edges)
        else:
            self._probability, self._net_ms = 0.0, 0
        if self.state is VadState.SPEAKING:
            self._seek_pause(edges)
        elif self.state is VadState.PAUSED:
            self._watch_pause(edges)

    def _classify_windows(self, edges: list[Edge]) -> None:
        """Run the VAD model on every complete window; after the gate was closed, start a little before it opened."""
        if self._processed - self._windows.end > self._windows.preroll_samples:
            self._windows.restart(self._processed - self._windows.preroll_samples)
        while self._processed - self._windows.end >= self._window_samples:
            self._probability_before = self._probability
            self._probability = self._windows.classify()
            self._update_phase(self._probability, edges)

    def _update_phase(self, probability: float, edges: list[Edge]) -> None:
        """Update the phase with the result of one window. Far speech never starts a turn."""
        options = self.options
        if self.state is not VadState.SPEAKING and not self._near_field.near:
            self._net_ms = 0
        elif self.state is VadState.QUIET:
            if probability >= options.speech_from:
                self._net_ms += self._window_ms
            else:
                self._net_ms = max(0, self._net_ms - 2 * self._window_ms) if probability >= options.silence_below else 0
            if self._windows.one_window_may_start and self._is_sure():
                self._net_ms = max(self._net_ms, 2 * self._window_ms)
            if self._net_ms >= max(options.min_speech_ms, self._windows.min_speech_ms):
                self._speak(SpeechStart, self._windows.end - self._net_ms * _PER_MS, edges)
        elif probability >= options.silence_below:
            if self.state is VadState.SPEAKING:
                self._speech_end = self._windows.end
            elif probability >= options.speech_from or self._speech_bounds.voiced_since(
                self._not_before, self._windows.end
            ):
                self._speak(SpeechResume, self._windows.end - self._window_samples, edges)

    def _is_sure(self) -> bool:
        """Return whether the model is sure of one of the two latest windows, and does not deny the other."""
        lower, higher = sorted((self._probability_before, self._probability))
        return higher >= self.options.sure_from and lower >= _BESIDE_SURE

    # --- what the results lead to ---------------------------------------------------------------

    def _speak(self, edge: type[SpeechStart | SpeechResume], first_window: int, edges: list[Edge]) -> None:
        """Enter the speaking phase; the window of speech that showed it begins at position `first_window`."""
        self.state = VadState.SPEAKING
        self._speech_end = self._windows.end
        self._not_before = self._speech_bounds.onset(self._windows.end, first_window, self._not_before)
        edges.append(edge(self._onset_at(self._not_before)))

    def _seek_pause(self, edges: list[Edge]) -> None:
        """Enter the pause phase when the silence is long enough, or when the detected speech is too far away for the
        user.
        """
        if self._probability < self.options.silence_below:
            voice_end = self._find_voice_end(self._speech_end)
            if self._processed - voice_end >= self.options.pause_ms * _PER_MS:
                self._begin_pause(voice_end, self._processed_ms, edges)
        elif self._processed - self._near_end >= _FAR_MS * _PER_MS:
            self._begin_pause(max(self._near_end - _FAR_MS * _PER_MS, self._not_before), self._processed_ms, edges)

    def _begin_pause(self, voice_end: int, until_ms: int, edges: list[Edge]) -> None:
        self.state = VadState.PAUSED
        self._gap_ms = 0
        self._not_before = voice_end
        self._pause = self._instant_at(voice_end)
        self._silence_ms = until_ms - self._pause.stream_ms
        edges.append(SpeechStop(self._pause, self._silence_ms))

    def _watch_pause(self, edges: list[Edge]) -> None:
        """Emit the silence so far, unless the level rises and the VAD model may be about to detect speech."""
        silence_ms = self._processed_ms - self._pause.stream_ms + self._gap_ms
        if not self._near_field.exceeds_noise or silence_ms - self._silence_ms >= _RISE_MS:
            self._grow(silence_ms, edges)

    def _grow(self, silence_ms: int, edges: list[Edge]) -> None:
        """Emit the silence so far, in steps, never less than before."""
        if silence_ms - self._silence_ms < _STEP_MS:
            return
        self._silence_ms = silence_ms
        edges.append(SilenceProgress(silence_ms))
        if silence_ms >= self.options.max_pause_ms:
            self.end_turn()

    # --- where exactly ----------------------------------------------------------------------------

    @property
    def _newest(self) -> int:
        """Return the position of the newest sample received, whether it is processed or not."""
        return self._received * RATE_HZ // self.rate_hz + self._lead

    @property
    def _processed_ms(self) -> int:
        return (self._processed - self._lead) // _PER_MS

    def _instant_at(self, position: int) -> Instant:
        return self.instant(max(0, position - self._lead) // _PER_MS)

    def _onset_at(self, position: int) -> Instant:
        """Return the instant of a beginning: of the samples on either side of the position, the later one counts."""
        stream_ms = max(0, position - self._lead) // _PER_MS
        return Instant(stream_ms, self._stream_clock.session_ms(stream_ms + 1) - 1)

    def _current_voice_end(self) -> int:
        """Return the position where the speech ends now: when it was cut off in mid-word, the end of the received
        audio.
        """
        fading = self._probability < self.options.silence_below
        return self._find_voice_end(self._speech_end if fading else self._processed)

    def _find_voice_end(self, speech_end: int) -> int:
        """Return the position of the end of the speech that the VAD model detected until `speech_end`, to 10 ms."""
        return max(self._speech_bounds.voice_end(self._processed, speech_end), self._not_before)
