"""The strategies `soft`, `adaptive` and `silence`, and a session's strategy: `silence` replaces one that fails, so that
no strategy ends a session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from voicepipe.turn.commands import NoteStrategyFailure
from voicepipe.turn.endpointing.completeness import OPEN
from voicepipe.turn.endpointing.pauses import Pauses
from voicepipe.turn.endpointing.probability import end_probability
from voicepipe.turn.endpointing.strategy import (
    MAX_REVERSIBLE_MS,
    MAX_WAIT_MS,
    NOTHING,
    Decision,
    EndpointStrategy,
    Evidence,
    Strategies,
)

if TYPE_CHECKING:
    from voicepipe.turn.context import TurnContext

_T = TypeVar("_T")

_FALLEN_ST: Final = -4.0
"""Final pitch, in semitones from the middle of the user's range, below which the pitch has fallen: the user sounds
finished.

A pitch that stays near the middle is held, which is how people keep their turn while they pause (Gravano and
Hirschberg, Turn-taking cues in task-oriented dialogue, Computer Speech and Language 25, 2011). On the labelled clips
`held` separates inner pauses of half a second from ends. Its AUC is 0.94 where people look for words and 0.66 where
they read.
"""

_RISEN_ST: Final = 4.0
"""A pitch that rises by this much may be a question's, or an octave error of the measurement: it counts as no evidence.
"""

UNKNOWN: Final = 0.5

_DRAWN_OUT_MS: Final = 320
"""Speech that goes on unbroken for this long, two syllables, is held; the longer the last stretch, the more.

At the end of a turn speech creaks or turns to breath, so that little of it is unbroken (voice quality: Gravano and
Hirschberg, as above). A hesitation lengthens the last syllable. It counts as much as the pitch. With half of each the
AUCs become 0.65 on natural turns (with the pitch alone 0.53), 0.85 where people look for words (0.83), 0.68 at inserted
pauses (0.60).
"""

_OPEN_HOLD: Final = 0.7
_BEYOND_HOLD: Final = 0.4
"""Missing words weigh as much as a held pitch, and the two together more than either."""

_START_MS: Final = 80
_START_HELD_MS: Final = 160
_START_SHARE: Final = 0.4
"""Share of the wait after which work on the answer begins at the latest.

Work begins no sooner than after 80 ms, later by up to 160 ms when the speech was held. Of the pauses after held speech
more are only pauses, and each of them would waste a start.
"""

TRANSCRIBER_SILENCE_MS: Final = 120
"""The silence, in ms, that the STT's end-of-speech event counts as before the VAD has detected one: enough to begin
when the speech gives no evidence.
"""

_CLOSED_SHARE: Final = 0.2
"""Complete words shorten the wait by up to this share of it."""

_HOLD_SHARE: Final = 0.5
"""How much a held ending adds to the wait; cubed, so that only strong evidence adds much. Without evidence the wait
stays as it was set.
"""

_PACE_SHARE: Final = 1.25
"""A user who went on after a pause may pause as long the next time. The wait covers that up to this share of what was
set: one long thought does not make a slow user.
"""

_MOST_UNFINISHED: Final = Evidence(final_pitch_st=0.0, unfinished=1.0)

SILENCE: Final = "silence"
ADAPTIVE: Final = "adaptive"
SOFT: Final = "soft"

_STEPS: Final = ("start_ms", "audible_ms", "effects_ms", "final_ms", "reversible_ms")
_OPTIONAL_STEPS: Final = ("effects_ms", "final_ms")


# --- the evidence -----------------------------------------------------------------------------


def held(final_pitch_st: float | None, final_voiced_ms: int | None = None) -> float:
    """Return how much the end of the speech sounds as if more will come: 0 fallen and broken, 1 held, 0.5 unknown."""
    if final_voiced_ms is None:
        return _level(final_pitch_st)
    return (_level(final_pitch_st) + min(1.0, final_voiced_ms / _DRAWN_OUT_MS)) / 2


def _level(final_pitch_st: float | None) -> float:
    """Return how much the pitch stayed level."""
    if final_pitch_st is None:
        return UNKNOWN
    if final_pitch_st < 0:
        return max(0.0, 1 - final_pitch_st / _FALLEN_ST)
    return max(UNKNOWN, 1 - (1 - UNKNOWN) * final_pitch_st / _RISEN_ST)


def stall(evidence: Evidence) -> float:
    """Return the same with the evidence of the words: 0 to 1.4."""
    missing = max(0.0, evidence.unfinished)
    voice = held(evidence.final_pitch_st, evidence.final_voiced_ms)
    return min(voice + _OPEN_HOLD * missing, 1 + _BEYOND_HOLD * missing**2)


def start_ms(wait_ms: int, evidence: Evidence) -> int:
    """Return the silence, in ms since the last voiced sample, after which work on the answer begins. Within the wait.

    An answer that is ready before the turn is over is held. Starting earlier than `answer_ms` before the end of the
    wait therefore saves nothing, and wastes a start each time the user goes on. An unknown `answer_ms` is taken for
    long.
    """
    soonest_ms = min(_START_MS + _START_HELD_MS * stall(evidence) ** 2, _START_SHARE * wait_ms)
    return round(soonest_ms if evidence.answer_ms is None else max(soonest_ms, wait_ms - evidence.answer_ms))


# --- the strategies ---------------------------------------------------------------------------


class Silence:
    """The strategy `silence`: exactly the silence that was set, whatever the evidence.

    For clients that set `silence_duration_ms`, and wherever another strategy fails.
    """

    def __init__(self, silence_ms: int) -> None:
        self.longest_ms = silence_ms

    def decide(self, evidence: Evidence) -> Decision:
        """Return the silence that was set, and a start within it."""
        return Decision(start_ms(self.longest_ms, evidence), self.longest_ms)


class Adaptive:
    """The strategy `adaptive`: the less finished the user sounds, the longer the wait, 0.74 to 2.31 of `silence_ms`.

    Other systems decide with one threshold and two waits. Here the wait is one continuous function of what is known:
    how the speech ended, how the words end, how long this user's pauses are. A little more evidence changes the wait
    by a little.
    """

    def __init__(self, silence_ms: int) -> None:
        self._silence_ms = silence_ms
        self.longest_ms = self.wait_ms(_MOST_UNFINISHED)

    def decide(self, evidence: Evidence) -> Decision:
        """Return the wait for this evidence, and a start within it."""
        wait_ms = self.wait_ms(evidence)
        return Decision(start_ms(wait_ms, evidence), wait_ms)

    def wait_ms(self, evidence: Evidence) -> int:
        """Return the silence, in ms, that ends the turn for this evidence."""
        pitch_and_words = _HOLD_SHARE * (stall(evidence) ** 3 - UNKNOWN**3)
        factor = 1 + pitch_and_words + _CLOSED_SHARE * min(0.0, evidence.unfinished)
        pace = min(_PACE_SHARE * self._silence_ms, evidence.longest_pause_ms)
        return round(max(factor * self._silence_ms, pace))


_SOFT_SILENCE_MS: Final = 720
_SURE_MS: Final = 350
_SURE: Final = 0.8
_UNSURE: Final = 0.3
"""The waits of `soft` at `silence_ms` = 720: 350 ms above a probability of 0.8, 720 ms below 0.3, linear between.

Measured on recorded telephone calls: with 350 ms at every pause 26 % of the turns overlap, with these waits 10 %.
"""

_SHORTEST_SOFT_MS: Final = 250
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

_REVERSIBLE_MS: Final = 1_000
"""A user who goes on later than this has heard enough of the answer to interrupt it."""


class Soft:
    """The strategy `soft`: the answer may be audible as soon as the end is likely, and is taken back if it was none.

    Function calls and the turn's outcome wait for the end as `adaptive` sees it. So does the answer to words that break
    off at one that needs more after it ("and", "the", "um"): no turn ends so.
    """

    def __init__(self, silence_ms: int) -> None:
        self._adaptive = Adaptive(silence_ms)
        self._unsure_ms = silence_ms
        sure_ms = round(_SURE_MS / _SOFT_SILENCE_MS * silence_ms)
        self._sure_ms = min(silence_ms, max(_SHORTEST_SOFT_MS, sure_ms))
        self.longest_ms = self._adaptive.longest_ms
        self._judged = NOTHING
        self._probability = end_probability(NOTHING)

    def decide(self, evidence: Evidence) -> Decision:
        """Return the wait for this probability of an end, and a start within it."""
        probability = self._probability_of(evidence)
        effects_ms = self._adaptive.wait_ms(evidence)
        longer_ms = _RESUMED_MS if evidence.n_resumed >= _RESUMES else 0
        longer_ms += round(_LATE_NOTICE_SHARE * max(0, evidence.noticed_ms - _PROMPT_NOTICE_MS))
        audible_ms = min(self._wait_ms(probability) + longer_ms, effects_ms)
        if evidence.unfinished >= OPEN:
            audible_ms = effects_ms
        begin_ms = 0 if probability >= _UNSURE else round(_START_SHARE * audible_ms)
        if evidence.answer_ms is not None:
            begin_ms = audible_ms - evidence.answer_ms
        begin_ms = max(begin_ms, min(_SOFT_START_MS, audible_ms))
        return Decision(begin_ms, audible_ms, effects_ms=effects_ms, reversible_ms=_REVERSIBLE_MS)

    def _probability_of(self, evidence: Evidence) -> float:
        """Return the probability of an end. It depends on what was said, and not on how long the pause has lasted, so
        that it is found once and not with every 20 ms of silence.
        """
        judged = replace(evidence, silence_ms=0, answer_ms=None)
        if judged != self._judged:
            self._judged, self._probability = judged, end_probability(judged)
        return self._probability

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
        if type(value) is not int and not (name in _OPTIONAL_STEPS and value is None):
            raise _Impossible(f"{name}: expected whole ms, got {_formatted(value)}")
    if not 0 <= decision.start_ms <= decision.audible_ms <= longest_ms:
        raise _Impossible(
            f"expected 0 <= start_ms <= audible_ms <= {longest_ms}, got {decision.start_ms} and {decision.audible_ms}"
        )
    if decision.effects_ms is not None and not decision.audible_ms <= decision.effects_ms <= longest_ms:
        raise _Impossible(
            f"effects_ms: expected audible_ms {decision.audible_ms} to {longest_ms}, got {decision.effects_ms}"
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


class EndOfTurn:
    """Asks the strategy when each step of the current pause is due."""

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
        evidence = replace(self.pauses.evidence, silence_ms=silence_ms, interim_text=interim_text, answer_ms=answer_ms)
        decision = self.strategy.decide(evidence)
        self._decided_for, self._decided = known, decision if self._begins_softly else decision.irrevocable()
        return self._decided

    @property
    def _begins_softly(self) -> bool:
        """Return whether an answer may begin before the end is certain: only one that the user may interrupt."""
        settings = self._context.settings
        answers = settings.create_response and settings.interrupt_response and settings.reply.audible
        return answers and settings.detection != "none"
