"""The store's bench: a report of what was requested, of turns that look real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.measure import store
from tests.measure.store_turns import MONTH_MS, PER_SESSION, made_up
from voicepipe.errors import VoicepipeError


async def test_every_question_gets_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    """With two figures, below a line of what it took to get there."""
    lines = await store.measured(40, repeats=1)
    assert lines[0].startswith("40 turns: ")
    names = [name for name, _ in store.questions(MONTH_MS)]
    rows = [line.strip("| ").split(" | ") for line in lines[4:]]
    assert [row[0] for row in rows] == names
    assert all(float(figure) >= 0 for row in rows for figure in row[1:])
    assert "newest sessions" in capsys.readouterr().err


async def test_a_folder_keeps_the_turns_for_a_second_run(tmp_path: Path) -> None:
    lines = await store.written(tmp_path, 40)
    assert lines[0].startswith("40 turns: ")
    first, second = [await store.measured(40, repeats=1, folder=tmp_path) for _ in range(2)]
    assert "written" not in first[0]
    assert "summed up" in first[0]
    assert len(first) == len(second)
    with pytest.raises(VoicepipeError, match="without turns"):
        await store.written(tmp_path, 40)


@pytest.mark.parametrize("wrong", [("--write-only",), ("--folder", "f", "--postgres", "u")])
def test_a_folder_is_for_sqlite(wrong: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        store.main(list(wrong))


def test_turns_are_drawn_alike_and_account_for_their_milliseconds() -> None:
    """The same seed gives the same month; each turn's contributions sum."""
    turns = list(made_up(50, until_ms=MONTH_MS))
    assert turns == list(made_up(50, until_ms=MONTH_MS))
    assert turns[0].started_at_ms == 0
    assert len({turn.record.session for turn in turns}) == -(-50 // PER_SESSION)
    for turn in turns:
        waited_ms = sum(part.duration_ms for part in turn.record.contributions)
        assert turn.record.total_ms in (None, waited_ms + turn.record.unattributed_ms)
