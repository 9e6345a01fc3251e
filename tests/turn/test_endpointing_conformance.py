"""The built-in strategies keep the promises of their port, and the suite finds strategies that do not."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from voicepipe.testing.conformance.endpointing import EndpointStrategyConformance
from voicepipe.turn.endpointing.built_in import BUILT_IN
from voicepipe.turn.endpointing.strategies import Silence
from voicepipe.turn.endpointing.strategy import Decision, Evidence, StrategyFactory


class TestBuiltIn(EndpointStrategyConformance):
    @pytest.fixture(params=BUILT_IN)
    def make(self, request: pytest.FixtureRequest) -> StrategyFactory:
        return BUILT_IN[request.param]


class Late(Silence):
    """Decides later than it has declared."""

    def decide(self, evidence: Evidence) -> Decision:
        return Decision(0, self.max_wait_ms + 1)


class Moody(Silence):
    """Remembers its calls."""

    def __init__(self, silence_ms: int) -> None:
        super().__init__(silence_ms)
        self._calls = count()

    def decide(self, evidence: Evidence) -> Decision:
        return Decision(min(next(self._calls), self.max_wait_ms), self.max_wait_ms)


class Slow(Silence):
    """Searches for long."""

    def decide(self, evidence: Evidence) -> Decision:
        for _ in range(1_000):
            found = super().decide(evidence)
        return found


@pytest.mark.parametrize(
    ("make", "broken", "more"),
    [
        (Late, "test_decisions_are_possible", {"silence_ms": 720}),
        (Late, "test_it_ends_turns", {"words": None}),
        (Moody, "test_the_same_evidence_gives_the_same_decision", {"silence_ms": 720}),
        (Slow, "test_a_decision_is_quick", {}),
    ],
)
def test_a_broken_promise_is_found(make: StrategyFactory, broken: str, more: dict[str, Any]) -> None:
    check = getattr(EndpointStrategyConformance(), broken)
    check(Silence, **more)
    with pytest.raises(AssertionError):
        check(make, **more)
