"""Read audio files of any kind piece by piece, so that an hour of speech is never held in memory.

libsndfile reads wav, flac, ogg (Vorbis, Opus) and mp3. PyAV, where it is installed, reads what browsers and
telephones record (webm, mp4, m4a).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from voicepipe.audio.files import UnreadableSound
from voicepipe.audio.samples import FULL_SCALE, Samples, silence
from voicepipe.audio.silence_trim import quietest_cut

READ_FRAMES: Final = 1 << 15
"""Frames decoded at a time."""

RATES_HZ: Final = range(4_000, 192_001)
MAX_CHANNELS: Final = 16
"""Channel limit of an uploaded file: a file with more was not recorded with a microphone."""

MAX_SAMPLES: Final = 7_200 * 48_000 * 2
"""Limit of decoded samples per file, all channels together: 2 h of 48 kHz stereo. A small file may decode to more."""

PIECE_S: Final = 25
"""The longest piece. Every transcriber keeps at least 30 s of an utterance."""

EARLIEST_CUT_S: Final = 12
"""After this a piece is cut at its quietest point."""

Blocks = Iterator[npt.NDArray[np.float32]]
"""float32, (n_frames, n_channels), full scale 1."""

WITH_LENGTH: Final = frozenset({"FLAC", "WAV"})
"""Formats whose header holds their length. Other formats estimate the length or store it at the end."""

UNKNOWN_LENGTH_FRAMES: Final = 1 << 62
"""A stream of unknown length reports about this many frames, or more."""

ACCEPTED: Final = "wav, flac, ogg, mp3"
RECORDED: Final = "webm, mp4, m4a"


class TooLong(UnreadableSound):
    """The file is longer than the limit."""


class _Opened(Struct, frozen=True):
    rate_hz: int
    n_channels: int
    blocks: Blocks

    n_frames: int = 0
    """Frames according to the file itself; 0 when the file has none, or when its value is not credible."""


class Pieces:
    """An iterator over the pieces of an audio file. Every method blocks: use it in a thread, one method at a time."""

    def __init__(self, file: bytes, rate_hz: int, *, max_duration_s: int, max_samples: int = MAX_SAMPLES) -> None:
        """Open the file.

        Args:
            file: the whole file, in any container.
            rate_hz: sample rate of the pieces.
            max_duration_s: limit of the duration.
            max_samples: limit of decoded samples over all channels.

        Raises:
            UnreadableSound: the file is not readable audio; the text names the readable formats.
            TooLong: the header reports a longer duration.
        """
        import soxr  # costly to import, and rarely needed

        opened = _open(file)
        if opened.rate_hz not in RATES_HZ or not 0 < opened.n_channels <= MAX_CHANNELS:
            why = f"expected {RATES_HZ[0]} to {RATES_HZ[-1]} Hz and 1 to {MAX_CHANNELS} channels"
            raise UnreadableSound(f"{why}, got {opened.rate_hz} Hz and {opened.n_channels}")
        self._blocks, self._from_hz, self._rate_hz = opened.blocks, opened.rate_hz, rate_hz
        self._resampled = soxr.ResampleStream(opened.rate_hz, rate_hz, 1, dtype="float32")
        self._max_frames = min(max_duration_s * opened.rate_hz, max_samples // opened.n_channels)
        self._limits = f"{max_duration_s} s and {max_samples} samples"
        self._n_frames = 0
        self._check_length(opened.n_frames)
        self._waiting: Samples = silence(0)
        self._over = False

    @property
    def read_s(self) -> float:
        """Return how many seconds of the file have been read."""
        return self._n_frames / self._from_hz

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> Samples:
        """Return the next piece, int16, (n_samples,), mono, at most 25 s.

        Raises:
            UnreadableSound: the file is broken here.
            TooLong: the file exceeds its limit.
        """
        max_samples = PIECE_S * self._rate_hz
        while len(self._waiting) <= max_samples and not self._over:
            self._waiting = np.concatenate((self._waiting, *self._more(max_samples)))
        if len(self._waiting) > max_samples:
            n = quietest_cut(self._waiting[:max_samples], self._rate_hz, from_ms=1_000 * EARLIEST_CUT_S)
        else:
            n = len(self._waiting)
        piece, self._waiting = self._waiting[:n], self._waiting[n:]
        if not n:
            raise StopIteration
        return piece

    def _check_length(self, n_frames: int) -> None:
        if n_frames > self._max_frames:
            raise TooLong(f"expected at most {self._limits} of sound, got more")

    def _more(self, n_samples: int) -> list[Samples]:
        """Read more blocks, about `n_samples` samples; fewer at the end."""
        found, n_found = list[Samples](), 0
        while n_found < n_samples and not self._over:
            block = next(self._blocks, None)
            self._over = block is None
            mono = np.zeros(0, np.float32) if block is None else block.mean(axis=1, dtype=np.float32)
            self._n_frames += len(mono)
            self._check_length(self._n_frames)
            found.append(_int16(self._resampled.resample_chunk(mono, last=self._over)))
            n_found += len(found[-1])
        return found


def _int16(sound: npt.NDArray[np.float32]) -> Samples:
    return np.clip(np.rint(np.nan_to_num(sound) * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def _open(file: bytes) -> _Opened:
    import soundfile

    with suppress(soundfile.SoundFileError):
        sound = _straight(soundfile)(io.BytesIO(file))
        n_frames = sound.frames if sound.format in WITH_LENGTH else 0
        return _Opened(
            sound.samplerate, sound.channels, _by_libsndfile(sound), n_frames if n_frames < UNKNOWN_LENGTH_FRAMES else 0
        )
    try:
        av = import_module("av")  # not by name: type checking must not require it
    except ImportError:
        raise UnreadableSound(f"expected a sound file: {ACCEPTED}. {RECORDED} need PyAV: pip install av") from None
    try:
        container = av.open(io.BytesIO(file), metadata_errors="ignore")
        if container.streams.audio:
            # One thread: several would multiply with each request.
            codec = container.streams.audio[0].codec_context
            codec.thread_count = 1
            return _Opened(codec.sample_rate, codec.channels, _by_ffmpeg(av, container))
    except (av.FFmpegError, ValueError, OverflowError):
        pass
    raise UnreadableSound(f"expected a sound file: {ACCEPTED}, {RECORDED}")


@cache
def _straight(soundfile: Any) -> Any:
    """Make the reader's file sequential: read from beginning to end without seeking.

    After each read the library seeks to the position where it already is. The seek costs more than the read. It also
    makes an MP3 decoder lose the state for the next frame (audible clicks), and it fails in a FLAC stream that does
    not state its length.
    """

    class Straight(soundfile.SoundFile):  # type: ignore[misc]  # the library has no types
        def seekable(self) -> bool:
            return False

    return Straight


def _by_libsndfile(sound: Any) -> Blocks:
    import soundfile

    with sound:
        try:
            while len(block := sound.read(READ_FRAMES, dtype="float32", always_2d=True)):
                yield block
        except soundfile.SoundFileError as broken:
            raise UnreadableSound(f"the sound file is broken: {broken}") from None


def _by_ffmpeg(av: Any, container: Any) -> Blocks:
    with container:
        floats = av.AudioResampler(format="fltp")
        try:
            for frame in container.decode(audio=0):
                for each in floats.resample(frame):
                    yield each.to_ndarray().T.astype(np.float32, copy=False)
        except (av.FFmpegError, ValueError) as broken:
            raise UnreadableSound(f"the sound file is broken: {broken}") from None
