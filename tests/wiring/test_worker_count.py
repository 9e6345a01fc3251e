"""How many workers serve by default: one for each core, less one where local models run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.wiring import workers

CLOUD = {f"agents.default.{stage}": "openai/gpt-4o" for stage in ("stt", "llm", "tts")}


def loaded(folder: Path, **more: object) -> Settings:
    overrides = {f"server.{name}": value for name, value in more.items()}
    return load(overrides=CLOUD | overrides, environ={"HOME": "/h", "OPENAI_API_KEY": "k"}, folder=folder)


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_each_core_has_a_worker(cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: cores)
    assert workers.count(loaded(tmp_path)) == cores


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (8, 7)])
def test_local_models_have_a_core_of_their_own(
    cores: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "cores", lambda: cores)
    settings = load(environ={"HOME": "/h"}, folder=tmp_path)
    assert workers.count(settings) == expected


def test_a_number_in_the_settings_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 1)
    assert workers.count(loaded(tmp_path, workers=3)) == 3
    with pytest.raises(ConfigError, match=r"server\.workers: expected a whole number from 0 to 256, got 257"):
        loaded(tmp_path, workers=257)


@pytest.mark.parametrize(
    ("quota", "cores"), [("200000 100000", 2), ("max 100000", 4), ("50000 100000", 1), ("900000 100000", 4), ("", 4)]
)
def test_the_limit_of_a_container_counts(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    file = tmp_path / "cpu.max"
    if quota:
        file.write_text(f"{quota}\n")
    assert workers.cores(file) == cores
