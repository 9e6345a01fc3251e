"""The check that every record of the test suite goes through: it sees what is wrong, and passes what is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from voicepipe.testing.attribution import Attribution, problems
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.testing.story import Story
from voicepipe.turn import budget
from voicepipe.turn.turns import Turn


def answered() -> None:
    """A caller asks and is answered."""
    story = Story()
    story.says()
    story.answers()


def test_the_records_of_this_suite_are_looked_at(attribution: Attribution) -> None:
    """The fixture stands where the core's records are made."""
    before = attribution.n_checked
    answered()
    assert attribution.n_checked > before
    assert attribution.taken() == []


@pytest.mark.parametrize(
    "mark", [budget.ASKED, budget.FIRST_DELTA, budget.FIRST_CLAUSE, budget.FIRST_SOUND, budget.FIRST_SENT]
)
def test_a_removed_mark_is_red(attribution: Attribution, monkeypatch: pytest.MonkeyPatch, mark: str) -> None:
    """Were one mark not stamped any more, every test with such a turn would fail, and name the record."""
    stamp = Turn.mark

    def forgetful(turn: Turn, name: str, now_ms: int) -> None:
        if name != mark:
            stamp(turn, name, now_ms)

    monkeypatch.setattr(Turn, "mark", forgetful)
    answered()
    found = attribution.taken()  # taken, or this test would be red as well
    assert found
    assert all(problem.startswith("record of turn_s_0001, revision 0: ") for problem in found)


def test_a_whole_record_has_no_problems() -> None:
    """Nor has one that came to no end."""
    assert problems(turn_record()) == []
    assert problems(turn_record(MARKS[:7])) == []


def test_each_kind_of_wrong_is_told() -> None:
    """A sum that is not the total, a span that is none, time that runs backwards, a hole, parts of nothing."""
    whole = turn_record()
    first, second, *rest = whole.contributions

    def told(**changes: object) -> str:
        return "\n".join(problems(replace(whole, **changes)))  # type: ignore[arg-type]

    assert "not from t0" in told(total_ms=900)
    assert "make 982 ms of 983 ms" in told(unattributed_ms=-1)
    assert "-1 ms are not attributed" in told(unattributed_ms=-1)
    assert "no span between marks" in told(contributions=(replace(first, to_mark="lunch"), second, *rest))
    assert "not as long" in told(contributions=(replace(first, duration_ms=1), second, *rest))
    assert "negative" in told(contributions=(replace(first, duration_ms=-1), second, *rest))
    assert "does not begin where" in told(contributions=(second, first, *rest))
    assert "6 ms are not attributed" in told(unattributed_ms=6)
    assert "parts of no total" in told(total_ms=None)
