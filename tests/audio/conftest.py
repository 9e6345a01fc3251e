"""The labelled clips of tests/data, at the rate a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.audio.samples import Samples

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Clip:
    """One labelled recording. Noise has no `start_ms` and `end_ms`."""

    kind: str
    path: Path
    sha256: str
    start_ms: int
    end_ms: int

    def samples(self, rate_hz: int) -> Samples:
        return _read(self.path, rate_hz)


OfKind = Callable[..., list[Clip]]
"""Kinds of recordings -> the clips of these kinds."""


@cache
def _read(path: Path, rate_hz: int) -> Samples:
    return read_sound(path, rate_hz)


@pytest.fixture(scope="session")
def clips() -> dict[str, Clip]:
    """Every clip by id."""
    lines = [json.loads(line) for line in (DATA / "manifest.jsonl").read_text().splitlines()]
    return {
        line["id"]: Clip(
            line["kind"], DATA / line["path"], line["sha256"], line["speech_start_ms"], line["speech_end_ms"]
        )
        for line in lines
    }


@pytest.fixture(scope="session")
def of_kind(clips: dict[str, Clip]) -> OfKind:
    """The clips of the named kinds."""
    return lambda *kinds: [clip for clip in clips.values() if clip.kind in kinds]
