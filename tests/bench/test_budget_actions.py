"""What acting on the budget is worth: each action helps where it should, and only there."""

from __future__ import annotations

import sys

import pytest

from tests.measure import budget_actions
from tests.measure.budget_actions import APOLOGY, FILLER, NOTHING, SETUPS, Figures, measured, tokens_of
from tests.measure.budget_actions_world import Draw, Setup, Stage
from voicepipe.values import replace

LONG = "I looked at the three offers that you mentioned and the second one is by far the cheapest of them."
QUICK = Draw(tokens_of("It is noon."), (200.0, 200.0), (False, False), 10.0, 80.0)
SLOW_WORDS = replace(QUICK, tokens=tokens_of(LONG), gap_ms=130.0)
LATE = replace(QUICK, first_ms=(1_800.0, 200.0))
REFUSED = replace(QUICK, first_ms=(100.0, 200.0), fails=(True, False))
HANGS = replace(QUICK, first_ms=(float("inf"), 200.0))

BY_NAME = {setup.name: setup for setup in SETUPS}


def one(setup: Setup, draw: Draw) -> Figures:
    return measured(setup, [draw])


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_a_quick_answer_needs_no_action(setup: Setup) -> None:
    figures = one(setup, QUICK)
    assert (figures.n, figures.over, figures.late, figures.mute, figures.acted, figures.calls_a_turn) == (
        1,
        0,
        0,
        0,
        0,
        1,
    )


@pytest.mark.parametrize(
    ("name", "draw"),
    [("short clause", SLOW_WORDS), ("hedge", LATE), ("fallback", REFUSED), ("fallback", HANGS)],
)
def test_an_action_makes_the_answer_sooner(name: str, draw: Draw) -> None:
    without, with_it = one(BY_NAME["no action"], draw), one(BY_NAME[name], draw)
    assert with_it.acted == 1
    assert with_it.p95_ms < without.p95_ms


def test_a_filler_breaks_the_silence_and_delays_nothing() -> None:
    without, with_it = one(BY_NAME["no action"], LATE), one(BY_NAME["filler"], LATE)
    assert (without.late, with_it.late, with_it.acted) == (1, 0, 1)
    assert with_it.p95_ms == without.p95_ms


def test_apology_is_played_when_no_answer_comes() -> None:
    without, with_it = one(BY_NAME["no action"], REFUSED), one(BY_NAME["apology"], REFUSED)
    assert (without.mute, with_it.mute, with_it.acted) == (1, 0, 1)
    assert with_it.over == 1, "it is no answer"


def test_core_makes_allowed_transitions_only() -> None:
    """In a session that has everything happen to it."""
    core = replace(NOTHING, budget_actions=replace(FILLER, shorten_after_ms=400, apology=APOLOGY.apology))
    stage = Stage(Setup(name="all", core=core))
    stage.play([QUICK, SLOW_WORDS, LATE, REFUSED, LATE, HANGS, QUICK])
    assert stage.illegal_moves == []
    assert [record.outcome for record in stage.records.values() if record.cause == "vad"].count("failed") == 2


def test_the_same_turns_for_every_setup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert budget_actions.draws(20, 7) == budget_actions.draws(20, 7)
    monkeypatch.setattr(sys, "argv", ["actions", "--turns", "16"])
    budget_actions.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [setup.name for setup in SETUPS]
