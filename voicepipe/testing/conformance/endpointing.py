"""Conformance suite of the port `EndpointStrategy`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from types import FrameType
from typing import Any

import pytest

from voicepipe.testing.core_driver import CoreDriver
from voicepipe.turn import events as e
from voicepipe.turn.commands import ReportStrategyFailure
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategy import MAX_REVERSIBLE_MS, MAX_WAIT_MS, Decision, Evidence, StrategyFactory
from voicepipe.turn.settings import CoreSettings, TurnSettings
from voicepipe.turn.states import UserState

SILENCES_MS = (0, 200, 720, 10_000, 14_400)
"""What clients may cause, and the most of the setting `silence_ms`: plain, and as a strategy without `turn_detection`
gets it."""

N_TRIED = 400
"""Number of combinations of evidence that are tried, always the same ones."""

MAX_LINES = 2_000
"""Maximum lines of Python in one decision: about 100 microseconds."""

NAME = "under_test"


def evidences() -> list[Evidence]:
    """Return evidence of all kinds, alone and together."""
    kinds = product(
        (
            ("", 0.0),
            ("I would like the", 1.0),
            ("If it rains,", 0.6),
            ("That is all.", -0.3),
            ("yes", -1.0),
            ("0 7 9", 0.5),
        ),
        ("", "I would", "0 7"),
        (0, 640, 30_000),
        (0, 80, 500, 9_000),
        (None, 0, 500),
        (None, "en", "xx"),
        ((), (("smart-turn", 0.9),), (("other", -1.0), ("smart-turn", 0.0))),
    )
    every = [
        Evidence(
            noticed_ms=min(silence_ms, 400),
            speech_ms=silence_ms + 700,
            text=text,
            unfinished=unfinished,
            interim_text=interim,
            longest_pause_ms=pause_ms,
            silence_ms=silence_ms,
            answer_ms=answer_ms,
            language=language,
            after_question=unfinished == -1.0,
            scores=scores,
        )
        for (text, unfinished), interim, pause_ms, silence_ms, answer_ms, language, scores in kinds
    ]
    return [Evidence(), *Random(0).sample(every, N_TRIED)]


def n_lines(work: Callable[[], object]) -> int:
    """Return how many lines of Python `work` runs: a measure of time that a busy machine does not change."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


class EndpointStrategyConformance:
    """For any strategy. Fixture: `make`, its factory."""

    @pytest.mark.parametrize("silence_ms", SILENCES_MS)
    def test_decisions_are_possible(self, make: StrategyFactory, silence_ms: int) -> None:
        """Decisions are whole ms, in order, none later than the strategy has declared."""
        strategy = make(silence_ms)
        assert type(strategy.max_wait_ms) is int
        assert 0 <= strategy.max_wait_ms <= MAX_WAIT_MS
        for evidence in evidences():
            decision = strategy.decide(evidence)
            assert isinstance(decision, Decision)
            assert type(decision.start_ms) is type(decision.audible_ms) is int
            assert 0 <= decision.start_ms <= decision.audible_ms <= strategy.max_wait_ms, evidence
            if decision.final_ms is not None:
                assert type(decision.final_ms) is int
                assert decision.final_ms >= decision.audible_ms, evidence
            if decision.effects_ms is not None:
                assert type(decision.effects_ms) is int
                assert decision.audible_ms <= decision.effects_ms <= strategy.max_wait_ms, evidence
            assert type(decision.reversible_ms) is int
            assert 0 <= decision.reversible_ms <= MAX_REVERSIBLE_MS, evidence

    @pytest.mark.parametrize("silence_ms", SILENCES_MS)
    def test_the_same_evidence_gives_the_same_decision(self, make: StrategyFactory, silence_ms: int) -> None:
        """Earlier decisions, in this session or another, change nothing; otherwise no journal could be replayed."""
        every = evidences()
        strategy = make(silence_ms)
        forwards = [strategy.decide(evidence) for evidence in every]
        backwards = [strategy.decide(evidence) for evidence in reversed(every)]
        assert forwards == backwards[::-1]
        assert forwards == [make(silence_ms).decide(evidence) for evidence in every]

    def test_a_decision_is_quick(self, make: StrategyFactory) -> None:
        """A decision is quick, since it delays the event loop of all sessions."""
        strategy = make(720)
        assert max(n_lines(lambda each=each: strategy.decide(each)) for each in evidences()[:20]) <= MAX_LINES  # type: ignore[misc]

    @pytest.mark.parametrize("words", ["That is all.", "I would like the", None])
    def test_it_ends_turns(self, make: StrategyFactory, words: str | None) -> None:
        """The strategy ends turns in the core without a failure, also with late words and with a silent VAD."""
        for last_silence_ms in (MAX_WAIT_MS, 200):
            driver = CoreDriver(
                TurnSettings(silence_ms=720, end_of_turn=NAME),
                CoreSettings(speculate=True),
                strategies={**BUILT_IN, NAME: make},
            )
            driver.at(1_000, e.SpeechStarted(940, 640))
            driver.at(2_080, e.SpeechPaused(2_000, 2_000, 80))
            if words is not None:
                driver.at(2_150, e.TranscriptFinished(1, 1, words))
            for silence_ms in _silences(last_silence_ms, make(720).max_wait_ms):
                driver.at(2_000 + silence_ms, e.SilenceGrew(silence_ms))
            driver.at(2_080 + MAX_WAIT_MS + 10_000)
            assert driver.core.user.state in (UserState.ENDED, UserState.QUIET)
            assert driver.illegal_moves == []
            assert [command for command in driver.commands if isinstance(command, ReportStrategyFailure)] == []


def _silences(last_ms: int, max_wait_ms: int) -> Iterator[int]:
    yield from range(180, min(last_ms, max_wait_ms + 40), 20)
