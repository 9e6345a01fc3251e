"""What noise reduction before the VAD and the STT would do: word errors of the local STT, false starts, CPU.

    .venv/bin/python -m tests.measure.noise_reduction --speech FOLDER [--clips 40]

FOLDER has `manifest.jsonl`, with clips of kind `clean` and `noise`. Noise is mixed in 10 dB below the speech. The
spectral gate is in this file; `rnnoise` (package `pyrnnoise`) and `webrtc` (package `webrtc-noise-gain`) are measured
where they are installed. None of them is a part of voicepipe: the results are why.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import soundfile

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples
from voicepipe.audio.silence_trim import trim
from voicepipe.audio.speech_events import SpeechStart
from voicepipe.audio.vad_segmenter import VadSegmenter
from voicepipe.bench.stt import WORD, word_errors
from voicepipe.providers.local.engine.moonshine import Moonshine

RATE_HZ: Final = 16_000
HOP: Final = 160
FRAME: Final = 320
SNR_DB: Final = 10

Method = Callable[[Samples], Samples]


def unchanged(samples: Samples) -> Samples:
    """The audio as it is."""
    return samples


def gate(samples: Samples, *, min_db: float) -> Samples:
    """Lower each band that is near its noise, which falls at once and rises by 3 dB a second."""
    window = np.sqrt(np.hanning(FRAME + 1)[:-1])
    n_frames = (len(samples) - FRAME) // HOP + 1
    at = np.arange(FRAME)[None, :] + HOP * np.arange(n_frames)[:, None]
    spectra = np.fft.rfft(samples.astype(np.float32)[at] * window)
    power = np.abs(spectra) ** 2 + 1.0
    noise_power, smooth, least = power[:10].mean(0), power[0], 10 ** (min_db / 20)
    gains = np.empty_like(power)
    earlier = np.ones(power.shape[1])
    for n in range(n_frames):
        smooth = 0.7 * smooth + 0.3 * power[n]
        noise_power = np.minimum(noise_power * 1.007, smooth)
        earlier = 0.6 * earlier + 0.4 * np.clip(1 - 2.0 * noise_power / power[n], least, 1)
        gains[n] = earlier
    frames = np.fft.irfft(spectra * gains) * window
    out = np.zeros(len(samples))
    for n in range(n_frames):
        out[n * HOP : n * HOP + FRAME] += frames[n]
    return np.clip(out, -32_768, 32_767).astype(np.int16)


def webrtc(samples: Samples, *, level: int) -> Samples:
    """WebRTC's noise suppression, 1 to 4."""
    processor: Any = importlib.import_module("webrtc_noise_gain").AudioProcessor(0, level)
    pcm = samples.astype("<i2").tobytes()
    pieces = [processor.Process10ms(pcm[at : at + 2 * HOP]).audio for at in range(0, len(pcm) - 2 * HOP + 1, 2 * HOP)]
    return np.frombuffer(b"".join(pieces), dtype=np.int16)


def rnnoise(samples: Samples) -> Samples:
    """RNNoise, a small recurrent network, at 48 kHz."""
    library: Any = importlib.import_module("pyrnnoise.rnnoise")
    up, down = Resampler(RATE_HZ, 48_000), Resampler(48_000, RATE_HZ)
    wide = np.concatenate([up.push(samples), up.flush()]).astype(np.float32)
    state, n = library.create(), library.FRAME_SIZE
    pointer = ctypes.POINTER(ctypes.c_float)
    for at in range(0, len(wide) - n + 1, n):
        place = wide[at : at + n].ctypes.data_as(pointer)
        library.lib.rnnoise_process_frame(state, place, place)
    library.destroy(state)
    clean = np.clip(wide, -32_768, 32_767).astype(np.int16)
    return np.concatenate([down.push(clean), down.flush()])


def methods() -> Iterator[tuple[str, Method]]:
    """Yield all that can be measured here."""
    yield "none", unchanged
    yield "gate, -10 dB", partial(gate, min_db=-10)
    yield "gate, -20 dB", partial(gate, min_db=-20)
    for name, package, several in (
        ("webrtc", "webrtc_noise_gain", {"webrtc, 1": partial(webrtc, level=1), "webrtc, 4": partial(webrtc, level=4)}),
        ("rnnoise", "pyrnnoise.rnnoise", {"rnnoise": rnnoise}),
    ):
        try:
            importlib.import_module(package)
        except ImportError:
            sys.stdout.write(f"{name} is not installed\n")
        else:
            yield from several.items()


def read(folder: Path, path: str) -> Samples:
    """Return a clip at 16 kHz."""
    samples, rate_hz = soundfile.read(folder / path, dtype="int16")
    if rate_hz != RATE_HZ:
        resampler = Resampler(rate_hz, RATE_HZ)
        samples = np.concatenate([resampler.push(samples), resampler.flush()])
    return np.asarray(samples, dtype=np.int16)


def rms(samples: npt.NDArray[Any]) -> float:
    """Return the level of samples."""
    return float(np.sqrt(np.mean(samples.astype(np.float64) ** 2))) + 1e-9


def noisy(speech: Samples, level: float, noise: Samples, at: int) -> Samples:
    """Mix noise in, `SNR_DB` below the speech's level."""
    piece = np.resize(np.roll(noise, -at), len(speech)).astype(np.float64)
    mixed = speech + piece * (level / rms(piece) / 10 ** (SNR_DB / 20))
    return np.clip(mixed, -32_768, 32_767).astype(np.int16)


def n_starts(samples: Samples) -> int:
    """Return how often the VAD finds speech to begin."""
    segmenter, found = VadSegmenter(RATE_HZ), 0
    for at in range(0, len(samples), 320):
        edges = segmenter.push(samples[at : at + 320], (at + 320) // 16)
        found += sum(isinstance(edge, SpeechStart) for edge in edges)
    return found


def words(text: str) -> list[str]:
    """Return the words to compare."""
    return WORD.findall(text.lower())


class Measured:
    """The figures of one method in one kind of noise."""

    def __init__(self) -> None:
        self.errors = self.n_words = self.starts = self.missed = 0
        self.minutes = 0.0


def main() -> None:
    """Print a line for each method."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=40)
    parser.add_argument("--method", action="append", help="only these")
    options = parser.parse_args()
    manifest = [json.loads(line) for line in (options.speech / "manifest.jsonl").read_text().splitlines()]
    clean = [each for each in manifest if each["kind"] == "clean" and each["text"]]
    clean = clean[:: max(1, len(clean) // options.clips)][: options.clips]
    noises = {each["id"]: read(options.speech, each["path"]) for each in manifest if each["kind"] == "noise"}
    kinds = {
        "quiet": [],
        "babble": [noise for name, noise in noises.items() if "babble" in name],
        "noise": [noise for name, noise in noises.items() if "babble" not in name],
    }
    stt = Moonshine()
    sys.stdout.write(f"{len(clean)} clips\n\n| method | in | WER | starts without speech | CPU |\n{5 * '| --- '}|\n")
    for name, method in methods():
        if options.method and name not in options.method:
            continue
        cpu_s = audio_s = 0.0
        for kind, pieces in kinds.items():
            measured = Measured()
            for n, clip in enumerate(clean):
                speech = read(options.speech, clip["path"])
                begin, end = clip["speech_start_ms"] * 16, clip["speech_end_ms"] * 16
                level = rms(speech[begin:end])
                mixed = noisy(speech, level, pieces[n % len(pieces)], 7_919 * n) if pieces else speech
                before_s = time.process_time()
                result = method(mixed)
                cpu_s, audio_s = cpu_s + time.process_time() - before_s, audio_s + len(mixed) / RATE_HZ
                part = trim(result[max(0, begin - 4_800) : end + 4_800], RATE_HZ, before_ms=200, after_ms=300)
                text = stt._decode(part.astype(np.float32) / np.float32(32768)) if part.size else ""
                said = words(clip["text"])
                measured.errors += word_errors(said, words(text))
                measured.n_words += len(said)
            for noise in pieces:
                alone = np.resize(noise, 30 * RATE_HZ).astype(np.float64) * (1_500 / rms(noise) / 10 ** (SNR_DB / 20))
                measured.starts += n_starts(method(np.clip(alone, -32_768, 32_767).astype(np.int16)))
                measured.minutes += 0.5
            starts = f"{measured.starts} in {measured.minutes:.1f} min" if pieces else "-"
            sys.stdout.write(f"| {name} | {kind} | {100 * measured.errors / measured.n_words:.1f} % | {starts} | |\n")
            sys.stdout.flush()
        sys.stdout.write(f"| {name} | | | | {1_000 * cpu_s / audio_s:.2f} ms a second |\n")


if __name__ == "__main__":
    main()
