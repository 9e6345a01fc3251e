"""The strategies `soft`, `adaptive` and `silence`, and a session's strategy: `silence` replaces one that fails, so that
no strategy ends a session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from voicepipe.turn.commands import ReportStrategyFailure
from voicepipe.turn.endpointing.completeness import OPEN
from voicepipe.turn.endpointing.pauses import Pauses
from voicepipe.turn.endpointing.probability import end_probability, is_known
from voicepipe.turn.endpointing.strategy import (
    MAX_REVERSIBLE_MS,
    MAX_WAIT_MS,
    NOTHING,
    Decision,
    EndpointStrategy,
    Evidence,
    Strategies,
)
from voicepipe.values import replace

if TYPE_CHECKING:
    from voicepipe.turn.context import TurnContext

_T = TypeVar("_T")

_START_MS: Final = 120
_START_OPEN_MS: Final = 190
_START_SHARE: Final = 0.4
"""Share of the wait of `silence` after which work on the answer begins at the latest.

Work begins no sooner than after 120 ms, later by up to 190 ms where the words miss another. Of these pauses more are
only pauses, and each of them would waste a start.
"""

TRANSCRIBER_SILENCE_MS: Final = 120
"""The silence, in ms, that the STT's end-of-speech event counts as before the VAD has detected one: enough to begin
when the speech gives no evidence.
"""

_MIDDLE_SILENCE_MS: Final = 720
"""The `silence_ms` for which all waits here are given; with another one they are in proportion."""

_LIKELY_MS: Final = 500
_UNLIKELY_MS: Final = 1_000
_LIKELY: Final = 0.65
_UNLIKELY: Final = 0.5
"""The waits of `adaptive`: 500 ms from a probability of 0.65 on, 1,000 ms up to 0.5, linear between.

On labelled speech, cross-validated by speaker, they cut fewer turns than a fixed wait of 720 ms, and the median is more
than 100 ms shorter (`tests.measure.end_probability --traces`).
"""

_OPEN_MS: Final = 1_300
"""The wait of `adaptive` for words that break off at one that needs more after it."""

SILENCE: Final = "silence"
ADAPTIVE: Final = "adaptive"
SOFT: Final = "soft"

_STEPS: Final = ("start_ms", "audible_ms", "effects_ms", "final_ms", "reversible_ms")
_OPTIONAL_STEPS: Final = ("effects_ms", "final_ms")


# --- the evidence -----------------------------------------------------------------------------


class _Judged(Struct, frozen=True):
    probability: float
    """Of an end, 0 to 1."""

    is_known: bool
    """Whether it rests on any evidence."""


class _Judge:
    """Judges a pause. What it finds depends on what was said, and not on how long the pause has lasted, so that it is
    found once and not with every 20 ms of silence.
    """

    def __init__(self, probability: Callable[[Evidence], float]) -> None:
        self._probability = probability
        self._evidence = NOTHING
        self._judged = self._judge()

    def judged(self, evidence: Evidence) -> _Judged:
        """Return what this evidence shows."""
        lasting = replace(evidence, silence_ms=0, answer_ms=None)
        if lasting != self._evidence:
            self._evidence = lasting
            self._judged = self._judge()
        return self._judged

    def _judge(self) -> _Judged:
        return _Judged(self._probability(self._evidence), is_known(self._evidence))


def _begin_ms(judged: _Judged, audible_ms: int, answer_ms: int | None) -> int:
    """Return the silence after which work on the answer begins: so late that an answer of `answer_ms` is ready in time,
    and not in a pause between words.
    """
    begin_ms = 0 if judged.probability >= _UNSURE else round(_START_SHARE * audible_ms)
    if answer_ms is not None:
        begin_ms = audible_ms - answer_ms
    return max(begin_ms, min(_SOFT_START_MS, audible_ms))


def _scaled(wait_ms: float, silence_ms: int) -> int:
    """Return the wait for this `silence_ms`."""
    return round(wait_ms / _MIDDLE_SILENCE_MS * silence_ms)


def start_ms(wait_ms: int, evidence: Evidence) -> int:
    """Return the silence, in ms since the last voiced sample, after which work on the answer begins. Within the wait.

    An answer that is ready before the turn is over is held. Starting earlier than `answer_ms` before the end of the
    wait therefore saves nothing, and wastes a start each time the user goes on. An unknown `answer_ms` is taken for
    long.
    """
    soonest_ms = min(_START_MS + _START_OPEN_MS * max(0.0, evidence.unfinished), _START_SHARE * wait_ms)
    return round(soonest_ms if evidence.answer_ms is None else max(soonest_ms, wait_ms - evidence.answer_ms))


# --- the strategies ---------------------------------------------------------------------------


class Silence:
    """The strategy `silence`: exactly the silence that was set, whatever the evidence.

    For clients that set `silence_duration_ms`, and wherever another strategy fails.
    """

    def __init__(self, silence_ms: int) -> None:
        self.max_wait_ms = silence_ms

    def decide(self, evidence: Evidence) -> Decision:
        """Return the silence that was set, and a start within it."""
        return Decision(start_ms(self.max_wait_ms, evidence), self.max_wait_ms)


class Adaptive:
    """The strategy `adaptive`: the less likely the end, the longer the wait, 0.69 to 1.8 of `silence_ms`.

    Nothing is audible before, and nothing is taken back. Words that break off at one that needs more after it are
    waited for the longest. Where nothing distinguishes an end from a pause, the wait is `silence_ms`.
    """

    def __init__(self, silence_ms: int, probability: Callable[[Evidence], float] = end_probability) -> None:
        """`probability` returns that of an end, 0 to 1."""
        self._silence_ms = silence_ms
        self._judge = _Judge(probability)
        self.max_wait_ms = _scaled(_OPEN_MS, silence_ms)

    def decide(self, evidence: Evidence) -> Decision:
        """Return the wait for this evidence, and a start within it."""
        judged = self._judge.judged(evidence)
        wait_ms = self.wait_ms(evidence, judged)
        return Decision(_begin_ms(judged, wait_ms, evidence.answer_ms), wait_ms)

    def wait_ms(self, evidence: Evidence, judged: _Judged) -> int:
        """Return the silence, in ms, that ends the turn for this evidence, judged so."""
        if evidence.unfinished >= OPEN:
            return self.max_wait_ms
        if not judged.is_known:
            return self._silence_ms
        share = min(1.0, max(0.0, (_LIKELY - judged.probability) / (_LIKELY - _UNLIKELY)))
        return _scaled(_LIKELY_MS + share * (_UNLIKELY_MS - _LIKELY_MS), self._silence_ms)


_SURE_MS: Final = 350
_UNSURE_MS: Final = 700
_SURE: Final = 0.8
_UNSURE: Final = 0.3
"""The waits of `soft` at `silence_ms` = 720: 350 ms above a probability of 0.8, 700 ms below 0.3, linear between.

Measured on recorded telephone calls: with 350 ms at every pause 26 % of the turns overlap, with these waits 10 %.
"""

_MIN_SOFT_MS: Final = 250
"""No wait is shorter, whatever `silence_ms`, unless `silence_ms` itself is."""

_SOFT_START_MS: Final = 180
"""The silence from which work begins where the end is likely. Shorter pauses are between words."""

_PROMPT_NOTICE_MS: Final = 150
_LATE_NOTICE_SHARE: Final = 0.5
"""Where the VAD reports a pause later than this, the wait is longer by this share of the rest: noise hides the next
word as it hid the last one.

With 0.5 to 1.5 one turn less of 19 telephone turns overlaps at 10 dB; 0.5 costs least. Orders at 10 dB wait 19 ms
longer at p90, and clean speech waits no longer.
"""

_RESUMES: Final = 2
_RESUMED_MS: Final = 100
"""A user who has gone on twice is waited for this much longer; never longer than by `adaptive`."""

_TELEPHONE_MS: Final = 90
"""Users on a telephone are waited for this much longer: they think and spell aloud.

On the two speakers of one telephone call, 40 to 100 ms break one turn of 25 and not two, cross-validated, and with the
weights that ship 90 to 100 ms; 0.44 starts a turn are wasted and not 0.72.
"""

_REVERSIBLE_MS: Final = 1_000
"""A user who goes on later than this has heard enough of the answer to interrupt it."""


class Soft:
    """The strategy `soft`: the answer may be audible as soon as the end is likely, and is taken back if it was none.

    Function calls and the turn's outcome wait for the end as `adaptive` decides it. So does the answer to words that
    break off at one that needs more after it ("and", "the", "um"): no turn ends so.
    """

    def __init__(self, silence_ms: int, probability: Callable[[Evidence], float] = end_probability) -> None:
        """`probability` returns that of an end, 0 to 1."""
        self._adaptive = Adaptive(silence_ms)
        self._sure_ms, self._unsure_ms = (
            min(silence_ms, max(_MIN_SOFT_MS, _scaled(wait_ms, silence_ms))) for wait_ms in (_SURE_MS, _UNSURE_MS)
        )
        self.max_wait_ms = self._adaptive.max_wait_ms
        self._judge = _Judge(probability)

    def decide(self, evidence: Evidence) -> Decision:
        """Return the wait for this probability of an end, and a start within it."""
        judged = self._judge.judged(evidence)
        effects_ms = self._adaptive.wait_ms(evidence, judged)
        longer_ms = _TELEPHONE_MS if evidence.telephone else 0
        longer_ms += _RESUMED_MS if evidence.n_resumed >= _RESUMES else 0
        longer_ms += round(_LATE_NOTICE_SHARE * max(0, evidence.noticed_ms - _PROMPT_NOTICE_MS))
        audible_ms = min(self._wait_ms(judged.probability) + longer_ms, effects_ms)
        if evidence.unfinished >= OPEN:
            audible_ms = effects_ms
        begin_ms = _begin_ms(judged, audible_ms, evidence.answer_ms)
        return Decision(begin_ms, audible_ms, effects_ms=effects_ms, reversible_ms=_REVERSIBLE_MS)

    def _wait_ms(self, probability: float) -> int:
        share = min(1.0, max(0.0, (_SURE - probability) / (_SURE - _UNSURE)))
        return round(self._sure_ms + share * (self._unsure_ms - self._sure_ms))


# --- a session's strategy ---------------------------------------------------------------------


class _Impossible(Exception):
    """Raised for a decision that no turn can follow; the text has no words of the user."""


class SupervisedStrategy:
    """The strategy that the session's settings name, made anew when they change."""

    def __init__(self, context: TurnContext, strategies: Strategies) -> None:
        self._context, self._strategies = context, strategies
        self._made_for: tuple[str, int] | None = None
        self._strategy: EndpointStrategy = Silence(context.settings.silence_ms)
        self._max_wait_ms = 0
        self._failed: set[str] = set()
        """Names of strategies that have failed in this session: they are not tried again."""

    @property
    def max_wait_ms(self) -> int:
        """Return the longest possible wait in ms, whatever the evidence."""
        self._renew()
        return self._max_wait_ms

    def wait_ms(self) -> int:
        """Return the wait in ms where nothing is known."""
        return self.decide(NOTHING).audible_ms

    def decide(self, evidence: Evidence) -> Decision:
        """Return the strategy's decision, or that of `silence` once it has failed."""
        self._renew()
        decision = self._attempt(lambda: _checked(self._strategy.decide(evidence), self._max_wait_ms))
        return self._strategy.decide(evidence) if decision is None else decision

    def _renew(self) -> None:
        settings = self._context.settings
        requested = (settings.end_of_turn, settings.silence_ms)
        if requested == self._made_for:
            return
        self._made_for = requested
        self._fall_back()
        if settings.end_of_turn not in self._failed and (made := self._attempt(self._made)) is not None:
            self._strategy, self._max_wait_ms = made

    def _made(self) -> tuple[EndpointStrategy, int]:
        settings = self._context.settings
        make = self._strategies.get(settings.end_of_turn)
        if make is None:
            raise _Impossible("expected the name of an installed strategy")
        strategy = make(settings.silence_ms)
        max_wait_ms = strategy.max_wait_ms
        if type(max_wait_ms) is not int or not 0 <= max_wait_ms <= MAX_WAIT_MS:
            raise _Impossible(f"max_wait_ms: expected whole ms from 0 to {MAX_WAIT_MS}, got {_formatted(max_wait_ms)}")
        return strategy, max_wait_ms

    def _attempt(self, work: Callable[[], _T]) -> _T | None:
        """Return what the strategy does; None when it fails, after which `silence` is in its place."""
        try:
            return work()
        except Exception as bug:
            name = self._context.settings.end_of_turn
            self._failed.add(name)
            self._context.issue(ReportStrategyFailure(name, _cause(bug)))
            self._fall_back()
            return None

    def _fall_back(self) -> None:
        self._max_wait_ms = self._context.settings.silence_ms
        self._strategy = Silence(self._max_wait_ms)


def _checked(decision: object, max_wait_ms: int) -> Decision:
    if not isinstance(decision, Decision):
        raise _Impossible(f"expected a Decision, got {_formatted(decision)}")
    for name in _STEPS:
        value = getattr(decision, name)
        if type(value) is not int and not (name in _OPTIONAL_STEPS and value is None):
            raise _Impossible(f"{name}: expected whole ms, got {_formatted(value)}")
    if not 0 <= decision.start_ms <= decision.audible_ms <= max_wait_ms:
        raise _Impossible(
            f"expected 0 <= start_ms <= audible_ms <= {max_wait_ms}, got {decision.start_ms} and {decision.audible_ms}"
        )
    if decision.effects_ms is not None and not decision.audible_ms <= decision.effects_ms <= max_wait_ms:
        raise _Impossible(
            f"effects_ms: expected audible_ms {decision.audible_ms} to {max_wait_ms}, got {decision.effects_ms}"
        )
    if not 0 <= decision.reversible_ms <= MAX_REVERSIBLE_MS:
        raise _Impossible(f"reversible_ms: expected 0 to {MAX_REVERSIBLE_MS}, got {decision.reversible_ms}")
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


class EndpointSteps:
    """Requests from the strategy when each step of the current pause is due."""

    def __init__(self, context: TurnContext, strategies: Strategies) -> None:
        self._context = context
        self.strategy = SupervisedStrategy(context, strategies)
        self.pauses = Pauses()
        self.silence_ms = 0
        """How long the latest pause has lasted, in ms."""

        self._decided_for: tuple[object, ...] = ()
        self._decided = Decision(0, 0)

    def decide(self, interim_text: str, silence_ms: int, answer_ms: int | None) -> Decision:
        """Return the strategy's decision; an event that needs it several times makes it once."""
        known = (self.pauses.evidence, self._context.settings, interim_text, silence_ms, answer_ms)
        if known == self._decided_for:
            return self._decided
        evidence = replace(
            self.pauses.evidence,
            silence_ms=silence_ms,
            interim_text=interim_text,
            answer_ms=answer_ms,
            telephone=self._context.settings.telephone,
        )
        decision = self.strategy.decide(evidence)
        self._decided_for, self._decided = known, decision if self._begins_softly else decision.irrevocable()
        return self._decided

    @property
    def _begins_softly(self) -> bool:
        """Return whether an answer may begin before the end is certain: only one that the user may interrupt."""
        settings = self._context.settings
        answers = settings.create_response and settings.interrupt_response and settings.reply.audible
        return answers and settings.detection != "none"
