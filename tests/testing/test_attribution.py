"""The check that every record of the test suite goes through: it sees what is wrong, and passes what is right."""

from __future__ import annotations

import pytest

from voicepipe.testing.attribution import Attribution, problems
from voicepipe.testing.records import MARKS, turn_record
from voicepipe.testing.scenario import Scenario
from voicepipe.turn.record import attribution
from voicepipe.turn.turn import Turn
from voicepipe.values import replace


def answered() -> None:
    """A user puts a question and is answered."""
    scenario = Scenario()
    scenario.utters()
    scenario.answers()


def test_the_records_of_this_suite_are_looked_at(attribution: Attribution) -> None:
    """The fixture stands where the core's records are made."""
    before = attribution.n_checked
    answered()
    assert attribution.n_checked > before
    assert attribution.taken() == []


@pytest.mark.parametrize(
    "mark",
    [
        attribution.LLM_REQUESTED,
        attribution.FIRST_DELTA,
        attribution.FIRST_CLAUSE,
        attribution.FIRST_SOUND,
        attribution.FIRST_SENT,
    ],
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


def test_each_kind_of_fault_is_reported() -> None:
    """A sum that is not the total, a span that is none, time that runs backwards, a hole, parts of nothing."""
    whole = turn_record()
    first, second, *rest = whole.contributions

    def problems_of(**changes: object) -> str:
        return "\n".join(problems(replace(whole, **changes)))  # type: ignore[arg-type]

    assert "not from t0" in problems_of(total_ms=900)
    assert "make 982 ms of 983 ms" in problems_of(unattributed_ms=-1)
    assert "-1 ms are not attributed" in problems_of(unattributed_ms=-1)
    assert "no span between marks" in problems_of(contributions=(replace(first, to_mark="lunch"), second, *rest))
    assert "not as long" in problems_of(contributions=(replace(first, duration_ms=1), second, *rest))
    assert "negative" in problems_of(contributions=(replace(first, duration_ms=-1), second, *rest))
    assert "does not begin where" in problems_of(contributions=(second, first, *rest))
    assert "6 ms are not attributed" in problems_of(unattributed_ms=6)
    assert "parts of no total" in problems_of(total_ms=None)
