"""Run a session's strategy. One that fails is replaced by `silence`, so that no strategy ends a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from voicepipe.turn.commands import NoteStrategyFailure
from voicepipe.turn.context import TurnContext
from voicepipe.turn.endpointing.silence import Silence
from voicepipe.turn.endpointing.strategy import (
    MAX_WAIT_MS,
    NOTHING,
    Decision,
    EndpointStrategy,
    Evidence,
    Strategies,
)

_T = TypeVar("_T")
_STEPS: Final = ("start_ms", "audible_ms", "final_ms")


class _Impossible(Exception):
    """Raised for a decision that no turn can follow; the text has no words of the user."""


class SupervisedStrategy:
    """The strategy that the session's settings name, made anew when they change."""

    def __init__(self, context: TurnContext, strategies: Strategies) -> None:
        self._context, self._strategies = context, strategies
        self._made_for: tuple[str, int] | None = None
        self._strategy: EndpointStrategy = Silence(context.settings.silence_ms)
        self._longest_ms = 0
        self._failed: set[str] = set()
        """Names of strategies that have failed in this session: they are not tried again."""

    @property
    def longest_ms(self) -> int:
        """Return the longest possible wait in ms, whatever the evidence."""
        self._renew()
        return self._longest_ms

    def wait_ms(self) -> int:
        """Return the wait in ms where nothing is known."""
        return self.decide(NOTHING).audible_ms

    def decide(self, evidence: Evidence) -> Decision:
        """Return the strategy's decision, or that of `silence` once it has failed."""
        self._renew()
        decision = self._attempt(lambda: _checked(self._strategy.decide(evidence), self._longest_ms))
        return self._strategy.decide(evidence) if decision is None else decision

    def _renew(self) -> None:
        settings = self._context.settings
        requested = (settings.end_of_turn, settings.silence_ms)
        if requested == self._made_for:
            return
        self._made_for = requested
        self._fall_back()
        if settings.end_of_turn not in self._failed and (made := self._attempt(self._made)) is not None:
            self._strategy, self._longest_ms = made

    def _made(self) -> tuple[EndpointStrategy, int]:
        settings = self._context.settings
        make = self._strategies.get(settings.end_of_turn)
        if make is None:
            raise _Impossible("expected the name of an installed strategy")
        strategy = make(settings.silence_ms)
        longest_ms = strategy.longest_ms
        if type(longest_ms) is not int or not 0 <= longest_ms <= MAX_WAIT_MS:
            raise _Impossible(f"longest_ms: expected whole ms from 0 to {MAX_WAIT_MS}, got {_formatted(longest_ms)}")
        return strategy, longest_ms

    def _attempt(self, work: Callable[[], _T]) -> _T | None:
        """Return what the strategy does; None when it fails, after which `silence` is in its place."""
        try:
            return work()
        except Exception as bug:
            name = self._context.settings.end_of_turn
            self._failed.add(name)
            self._context.issue(NoteStrategyFailure(name, _cause(bug)))
            self._fall_back()
            return None

    def _fall_back(self) -> None:
        self._longest_ms = self._context.settings.silence_ms
        self._strategy = Silence(self._longest_ms)


def _checked(decision: object, longest_ms: int) -> Decision:
    if not isinstance(decision, Decision):
        raise _Impossible(f"expected a Decision, got {_formatted(decision)}")
    for name in _STEPS:
        value = getattr(decision, name)
        if type(value) is not int and not (name == "final_ms" and value is None):
            raise _Impossible(f"{name}: expected whole ms, got {_formatted(value)}")
    if not 0 <= decision.start_ms <= decision.audible_ms <= longest_ms:
        raise _Impossible(
            f"expected 0 <= start_ms <= audible_ms <= {longest_ms}, got {decision.start_ms} and {decision.audible_ms}"
        )
    if decision.final_ms is not None and decision.final_ms < decision.audible_ms:
        raise _Impossible(f"final_ms: expected at least audible_ms {decision.audible_ms}, got {decision.final_ms}")
    return decision


def _formatted(value: object) -> str:
    """Return a number as it is, and of anything else only the type: its text may be the user's."""
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def _cause(bug: Exception) -> str:
    """Return what to report of a failure: never an exception's text, which may be the user's words."""
    if isinstance(bug, _Impossible):
        return str(bug)
    at = bug.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f" in {at.tb_frame.f_code.co_filename.rpartition('/')[2]}, line {at.tb_lineno}"
    return f"{type(bug).__name__}{where}"
