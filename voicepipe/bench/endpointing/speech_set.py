"""A folder of labelled speech: its clips, and the noise mixes of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import FULL_SCALE, Samples

RATE_HZ: Final = 24_000
"""The sample rate of clients."""

_LOUDEST: Final = 0.98 * FULL_SCALE
"""Peak limit: a louder mix is attenuated as a whole."""

CLEAN: Final = "clean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One recording, and the start and end of its speech. Noise has neither."""

    id: str
    kind: str
    speaker: str
    path: Path
    duration_ms: int
    start_ms: int | None
    end_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseMix:
    """The noise over a clip, and the noise's first sample."""

    noise: str
    offset_ms: int
    snr_db: int

    @property
    def babble(self) -> bool:
        """Whether the noise consists of voices."""
        return "babble" in self.noise


class SpeechSet:
    """The clips of FOLDER/manifest.jsonl, with the noises of FOLDER/mixes.jsonl if it is there.

    Raises:
        OSError: the folder or its manifest does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.clips = {clip.id: clip for clip in (_clip(folder, line) for line in _lines(folder / "manifest.jsonl"))}
        self.mixes: dict[tuple[str, str], NoiseMix] = {}
        mixes = folder / "mixes.jsonl"
        for line in _lines(mixes) if mixes.exists() else ():
            mix = NoiseMix(noise=line["noise"], offset_ms=line["noise_offset_ms"], snr_db=line["snr_db"])
            self.mixes[line["id"], str(mix.snr_db)] = mix

    def of_kind(self, *kinds: str) -> list[Clip]:
        """Return the clips of these kinds."""
        return [clip for clip in self.clips.values() if clip.kind in kinds]

    def sound(self, clip: Clip, condition: str) -> Samples:
        """Return a clip as it is (`clean`) or with its noise (`10`: 10 dB SNR), int16, (n_samples,), 24 kHz.

        Raises:
            KeyError: there is no such mix.
        """
        samples = _read(clip.path)
        return samples if condition == CLEAN else self._mixed(clip, samples, self.mixes[clip.id, condition])

    def _mixed(self, clip: Clip, samples: Samples, mix: NoiseMix) -> Samples:
        if clip.start_ms is None or clip.end_ms is None:
            raise KeyError(f"{clip.id}: expected speech under the noise")
        noise = _read(self.clips[mix.noise].path).astype(np.float64)
        noise = np.resize(np.roll(noise, -(mix.offset_ms * RATE_HZ // 1_000)), len(samples))
        speech = samples[clip.start_ms * RATE_HZ // 1_000 : clip.end_ms * RATE_HZ // 1_000].astype(np.float64)
        gain = _rms(speech) / max(_rms(noise), 1.0) * 10 ** (-mix.snr_db / 20)
        mixed = samples + gain * noise
        mixed *= min(1.0, _LOUDEST / np.abs(mixed).max())
        return np.rint(mixed).astype(np.int16)


def _rms(samples: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(samples**2)))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def _clip(folder: Path, line: dict[str, Any]) -> Clip:
    return Clip(
        id=line["id"],
        kind=line["kind"],
        speaker=line["speaker"] or "",
        path=folder / line["path"],
        duration_ms=line["duration_ms"],
        start_ms=line["speech_start_ms"],
        end_ms=line["speech_end_ms"],
    )


@lru_cache(maxsize=64)
def _read(path: Path) -> Samples:
    return read_sound(path, RATE_HZ)
