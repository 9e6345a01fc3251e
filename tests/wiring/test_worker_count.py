"""How many workers serve by default: one for each core, less one where local models run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voicepipe.config import Settings, load
from voicepipe.errors import ConfigError
from voicepipe.wiring import workers
from voicepipe.wiring.machine_limits import ControlGroup

CLOUD = {f"agents.default.{stage}": "openai/gpt-4o" for stage in ("stt", "llm", "tts")}


def loaded(folder: Path, **more: object) -> Settings:
    overrides = {f"server.{name}": value for name, value in more.items()}
    return load(overrides=CLOUD | overrides, environ={"HOME": "/h", "OPENAI_API_KEY": "k"}, folder=folder)


def group(
    folder: Path, cores: int, monkeypatch: pytest.MonkeyPatch, machine_mb: int = 100_000, /, **limits: str
) -> ControlGroup:
    """Return a group on a machine of so many cores and so much memory. `limits`: the texts of its files; `outer_...`:
    of the group around it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": machine_mb * 1_000, "SC_PAGE_SIZE": 1_000}.__getitem__)
    outer, own = folder / "groups" / "outer", folder / "groups" / "outer" / "own"
    own.mkdir(parents=True)
    for name, text in limits.items():
        place = outer if name.startswith("outer_") else own
        (place / f"{name.removeprefix('outer_')}.max").write_text(f"{text}\n")
    (folder / "own").write_text("1:cpu:/elsewhere\n0::/outer/own\n")
    return ControlGroup(groups=folder / "groups", own=folder / "own")


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_each_core_has_a_worker(cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workers.count(loaded(tmp_path), group(tmp_path, cores, monkeypatch)) == cores


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (8, 7)])
def test_local_models_have_a_core_of_their_own(
    cores: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(environ={"HOME": "/h"}, folder=tmp_path)
    assert workers.count(settings, group(tmp_path, cores, monkeypatch)) == expected


def test_a_number_in_the_settings_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workers.count(loaded(tmp_path, workers=3), group(tmp_path, 1, monkeypatch)) == 3
    with pytest.raises(ConfigError, match=r"server\.workers: expected a whole number from 0 to 256, got 257"):
        loaded(tmp_path, workers=257)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"cpu": "200000 100000"}, 2),
        ({"cpu": "max 100000"}, 4),
        ({"cpu": "50000 100000"}, 1),
        ({"cpu": "900000 100000"}, 4),
        ({"cpu": "max 100000", "outer_cpu": "300000 100000"}, 3),
        ({"memory": "512000000"}, 3),
        ({"memory": "100000000"}, 1),
        ({"memory": "max", "outer_memory": "350000000"}, 2),
        ({"memory": "8000000000"}, 4),
        ({"cpu": "damaged"}, 4),
        ({}, 4),
    ],
)
def test_the_limits_of_a_container_count(
    limits: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workers.count(loaded(tmp_path), group(tmp_path, 4, monkeypatch, **limits)) == expected


def test_local_models_have_memory_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(environ={"HOME": "/h"}, folder=tmp_path)
    assert workers.count(settings, group(tmp_path, 8, monkeypatch, memory="1500000000")) == 3


def test_the_memory_of_the_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workers.count(loaded(tmp_path), group(tmp_path, 8, monkeypatch, 1_000)) == 6


def test_a_machine_without_control_groups_has_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    absent = ControlGroup(groups=tmp_path / "none", own=tmp_path / "none")
    assert (absent.cores(), absent.memory_mb()) == (3, None)
