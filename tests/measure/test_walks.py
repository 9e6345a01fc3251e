"""Tests of `tests.measure.walks`: each walk is found, and its length is checked."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs import section
from tests.measure.walks import MAX_FILES, PACKAGE, WALKS, Walk, measured, table

PATH: Final = re.compile(r"`((?:\w+/)*\w+\.py)`")


@pytest.fixture(scope="module")
def walks() -> dict[str, Walk]:
    """The walks of one conversation."""
    return asyncio.run(measured())


def test_each_walk_is_found(walks: dict[str, Walk]) -> None:
    """A walk contains its own files, and not those of another walk."""
    assert tuple(walks) == WALKS
    silence, pause, delta, interruption = walks.values()
    assert not any(path.startswith("turn/") for path in silence.files)
    assert {"session/audio_input.py", "turn/user.py"} <= set(pause.files)
    assert {"session/reply.py", "session/outbox.py"} <= set(delta.files)
    assert not {"session/reply.py", "session/audio_input.py"} & (set(pause.files) & set(delta.files))
    assert {"session/transcription.py", "turn/interruptions.py", "turn/record_builder.py"} <= set(interruption.files)
    assert [line.split()[0] for line in table(walks).splitlines()] == ["walk", "frame", "frame", "text", "interruption"]


def test_no_walk_is_longer_than_it_was(walks: dict[str, Walk]) -> None:
    """A walk that passes more files than before fails, until its number is raised."""
    assert {name: len(walk.files) for name, walk in walks.items() if len(walk.files) > MAX_FILES[name]} == {}


def test_calls_outside_the_package_are_not_counted() -> None:
    """Calls outside the package, and before and after the walk, are not counted."""
    walk = Walk()
    table({})
    walk.begin()
    table({})
    walk.end()
    assert walk.calls == []
    assert walk.n_moves == 0


def test_the_page_on_architecture_names_each_file_of_a_walk(walks: dict[str, Walk]) -> None:
    """The page on architecture names exactly the files of each walk, and their number."""
    measured_as = {"A frame": "frame in a pause", "A delta": "text delta", "An interruption": "interruption"}
    for heading, name in measured_as.items():
        named = set(PATH.findall(section(heading)))
        missing = set(walks[name].files) - named
        assert missing == set(), f"{heading}: {sorted(missing)}"
        assert named - set(walks[name].files) == set(), heading
        assert f"{len(walks[name].files)} files" in section(heading)


def test_the_files_that_the_page_names_exist() -> None:
    """The files that the page names exist, also those of walks that are not measured."""
    for heading in ("The core", "A token", "A record"):
        paths = PATH.findall(section(heading))
        assert paths
        assert [path for path in paths if not Path(PACKAGE, path).is_file()] == []
