"""Count the short answers that the VAD misses on a telephone: "yeah", "hello", "mm".

`python -m tests.measure.short_answers FOLDER...` plays labelled speech to the VAD of sessions, as G.711 mu-law at
8 kHz, in frames of 20 ms:

- whole: each clip with less than 900 ms of speech, most of them one word;
- first words: each clip's speech up to its first pause, if it is shorter than 700 ms ("Okay.", "All right.");
- cut: the first 250 ms of the speech of every clip, faded out, shorter than any of these words.

Missed: no start of speech is found. It prints the count for each of the three, and the clips that were missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import numpy as np

from voicepipe.audio.classifier import Vad
from voicepipe.audio.g711 import decode_mulaw, encode_mulaw
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples
from voicepipe.audio.speech_events import SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import VadSegmenter
from voicepipe.bench.endpointing.speech_set import CLEAN, RATE_HZ, Clip, SpeechSet

PHONE_HZ: Final = 8_000
FRAME_MS: Final = 20
SHORT_MS: Final = 900
FIRST_WORDS_MS: Final = 700
CUT_MS: Final = 250
FADE_MS: Final = 20
AROUND_MS: Final = 1_000
"""Room tone before and after the words."""

KINDS: Final = ("clean", "conversation", "backchannel", "short_answer", "hesitation", "phone", "call", "command")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One short answer."""

    kind: str
    """`whole`, `first words` or `cut`."""

    clip: str
    samples: Samples
    """int16, (n_samples,), 8 kHz."""


def answers(speech: SpeechSet) -> Iterator[Answer]:
    """Yield the short answers of a folder."""
    for clip in speech.of_kind(*KINDS):
        if clip.start_ms is None or clip.end_ms is None:
            continue
        samples = by_phone(speech.sound(clip, CLEAN))
        if clip.end_ms - clip.start_ms < SHORT_MS:
            yield Answer(kind="whole", clip=clip.id, samples=samples)
        elif (end_ms := first_pause_ms(samples, clip)) is not None:
            yield Answer(kind="first words", clip=clip.id, samples=cut(samples, clip.start_ms, end_ms))
        yield Answer(kind="cut", clip=clip.id, samples=cut(samples, clip.start_ms, clip.start_ms + CUT_MS))


def by_phone(samples: Samples) -> Samples:
    """Return 24 kHz samples as a telephone has them, 8 kHz."""
    resampler = Resampler(RATE_HZ, PHONE_HZ)
    return decode_mulaw(encode_mulaw(resampler.push(samples)))


def first_pause_ms(samples: Samples, clip: Clip) -> int | None:
    """Return where the first words end, if a pause follows them soon enough."""
    assert clip.start_ms is not None
    assert clip.end_ms is not None
    for edge in edges(samples):
        if isinstance(edge, SpeechStop):
            end_ms = edge.last_voiced.stream_ms
            return end_ms if end_ms - clip.start_ms < FIRST_WORDS_MS and end_ms < clip.end_ms else None
    return None


def cut(samples: Samples, start_ms: int, end_ms: int) -> Samples:
    """Return this part, faded out, in the clip's own room tone."""
    part = samples[start_ms * PHONE_HZ // 1_000 : end_ms * PHONE_HZ // 1_000].astype(np.float64)
    n_fade = FADE_MS * PHONE_HZ // 1_000
    part[-n_fade:] *= np.linspace(1, 0, n_fade)
    tone = samples[: max(PHONE_HZ // 10, (start_ms - 80) * PHONE_HZ // 1_000)].astype(np.float64)
    around = np.resize(tone, AROUND_MS * PHONE_HZ // 1_000)
    return np.rint(np.concatenate((around, part, around))).astype(np.int16)


def edges(samples: Samples, vad: Vad = "silero") -> Iterator[object]:
    """Yield what the VAD finds."""
    segmenter = VadSegmenter(PHONE_HZ, vad=vad)
    n_frame = FRAME_MS * PHONE_HZ // 1_000
    for end in range(n_frame, len(samples) + 1, n_frame):
        yield from segmenter.push(samples[end - n_frame : end], end * 1_000 // PHONE_HZ)


def is_detected(samples: Samples, vad: Vad = "silero") -> bool:
    """Return whether the VAD finds speech."""
    return any(isinstance(edge, SpeechStart) for edge in edges(samples, vad))


def main(arguments: list[str] | None = None) -> int:
    """Count, and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.measure.short_answers", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--vad", choices=get_args(Vad), default="silero", help="the setting `agents.NAME.vad` (silero)")
    options = parser.parse_args(arguments)
    found: dict[str, list[tuple[str, bool]]] = {}
    for folder in options.folders:
        for answer in answers(SpeechSet(folder)):
            found.setdefault(answer.kind, []).append((answer.clip, is_detected(answer.samples, options.vad)))
    for kind, results in found.items():
        missed = [clip for clip, detected in results if not detected]
        sys.stdout.write(f"{kind}: {len(missed)} of {len(results)} missed {' '.join(missed)}".rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
