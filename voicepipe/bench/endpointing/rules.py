"""The rules that the bench compares: strategies of the port, waits by a probability, and smart-turn's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from voicepipe.bench.endpointing.score import START_MS, Rule
from voicepipe.bench.endpointing.traces import Pause, Step
from voicepipe.errors import ConfigError
from voicepipe.ports.endpointing import strategy_named, strategy_names
from voicepipe.turn.endpointing.pauses import Pauses
from voicepipe.turn.endpointing.probability import SENTENCE_END, SMART_TURN, end_probability
from voicepipe.turn.endpointing.strategies import ADAPTIVE, SILENCE
from voicepipe.turn.endpointing.strategy import Decision, EndpointStrategy, Evidence

PROBABILITY: Final = "probability"
"""The rule of `WaitRule` by `end_probability`, which no strategy of the port has."""

SOFT: Final = "soft"

FIXED_MS: Final = (300, 400, 500, 720, 800)

SHORTEST_WAIT_MS: Final = 350
LONGEST_WAIT_MS: Final = 700
SURE: Final = 0.8
DOUBTFUL: Final = 0.3
"""The wait falls from the longest at this probability to the shortest at the other, linearly."""

WORDS_MS: Final = 60
"""Time from a pause to its words: a streaming STT's final, 50 ms, as it falls into frames."""

SENTENCE_END_MS: Final = 40
"""Time from the words to the language model's score, on an idle core."""

SMART_TURN_MS: Final = 60
"""Time from the silence at which smart-turn is asked to its score: 47 ms, as they fall into frames."""

OWN_SMART_TURN_AT_MS: Final = 100

_PIPECAT_AT_MS: Final = 200
_PIPECAT_COMPLETE: Final = 0.5
_PIPECAT_LIMIT_MS: Final = 3_000
"""Pipecat 1.14: its VAD reports the pause after 0.2 s; smart-turn ends the turn from 0.5, or 3 s of silence do."""


def wait_ms(probability: float) -> int:
    """Return the silence after which the answer may be audible."""
    share = min(1.0, max(0.0, (SURE - probability) / (SURE - DOUBTFUL)))
    return round(SHORTEST_WAIT_MS + share * (LONGEST_WAIT_MS - SHORTEST_WAIT_MS))


class WaitRule:
    """Waits by the probability of the evidence at each step. Work of `answer_ms` begins as late as the wait allows."""

    def __init__(self, probability: Callable[[Pause, Step], float], answer_ms: int) -> None:
        self._probability, self._answer_ms = probability, answer_ms

    def decide(self, pause: Pause, step: Step) -> Decision:
        """Return the wait, and the start of work."""
        audible_ms = wait_ms(self._probability(pause, step))
        return _with_words(Decision(max(START_MS, audible_ms - self._answer_ms), audible_ms), pause, step)

    def resumed(self, pause: Pause) -> None:
        """Do nothing: the rule has no memory."""


class StrategyRule:
    """A strategy of the port, with the evidence of a session."""

    def __init__(self, strategy: EndpointStrategy, answer_ms: int | None) -> None:
        self._strategy, self._answer_ms = strategy, answer_ms
        self._pauses = Pauses()
        self._paused: Pause | None = None
        self._known: Evidence | None = None

    def decide(self, pause: Pause, step: Step) -> Decision:
        """Return the strategy's decision."""
        if pause is not self._paused:
            self._paused = pause
            speech_ms = pause.voiced_ms - pause.began_ms
            noticed_ms = pause.steps[0].silence_ms
            self._pauses.began(speech_ms=speech_ms, noticed_ms=noticed_ms)
        known = evidence(pause, step)
        if known.text and not self._pauses.evidence.text:
            self._pauses.add_words(known.text)
        for name, score in known.scores:
            self._pauses.scored(name, score)
        whole = replace(
            self._pauses.evidence, silence_ms=step.silence_ms, answer_ms=self._answer_ms, telephone=pause.telephone
        )
        return _with_words(self._strategy.decide(whole), pause, step)

    def resumed(self, pause: Pause) -> None:
        """Record the pause, as a session does."""
        assert pause.onset_ms is not None
        self._pauses.resumed(pause.onset_ms - pause.voiced_ms)


class SmartTurnRule:
    """Pipecat's use of smart-turn: one question after 200 ms, and 3 s where it says that more will come."""

    def decide(self, pause: Pause, step: Step) -> Decision:
        """Return the wait. Work begins with it: Pipecat has no earlier start."""
        score = pause.audio_scores.get(_PIPECAT_AT_MS)
        is_complete = score is not None and score >= _PIPECAT_COMPLETE
        audible_ms = _PIPECAT_AT_MS + SMART_TURN_MS if is_complete else _PIPECAT_LIMIT_MS
        return Decision(audible_ms, audible_ms)

    def resumed(self, pause: Pause) -> None:
        """Do nothing: each pause is judged alone."""


def evidence(pause: Pause, step: Step) -> Evidence:
    """Return what a session knows of a pause at one step: words and scores come when they would."""
    since_ms = step.silence_ms - pause.steps[0].silence_ms
    scores: list[tuple[str, float]] = []
    if pause.sentence_end is not None and since_ms >= WORDS_MS + SENTENCE_END_MS:
        scores.append((SENTENCE_END, pause.sentence_end))
    smart_turn = pause.audio_scores.get(OWN_SMART_TURN_AT_MS)
    if smart_turn is not None and step.silence_ms >= OWN_SMART_TURN_AT_MS + SMART_TURN_MS:
        scores.append((SMART_TURN, smart_turn))
    return Evidence(silence_ms=step.silence_ms, text=pause.text if since_ms >= WORDS_MS else "", scores=tuple(scores))


def _with_words(decision: Decision, pause: Pause, step: Step) -> Decision:
    """Return the decision, but no start of work before the words are known: there is nothing to answer yet."""
    lacks_words = pause.text != "" and step.silence_ms - pause.steps[0].silence_ms < WORDS_MS
    return replace(decision, start_ms=decision.audible_ms) if lacks_words else decision


def rule_factory(text: str, silence_ms: int, answer_ms: int) -> Callable[[], Rule]:
    """Return what makes the rule of `NAME` or `NAME:SILENCE_MS`, one for each turn. `silence_ms`: where it names none.

    Raises:
        ConfigError: there is no such rule, or its wait is no number.
    """
    name, _, wait = text.partition(":")
    if name == SMART_TURN:
        return SmartTurnRule
    if name == PROBABILITY:
        return lambda: WaitRule(lambda pause, step: end_probability(evidence(pause, step)), answer_ms)
    try:
        silence_ms = int(wait or silence_ms)
    except ValueError:
        raise ConfigError(f"--rule {text}: expected a number of ms after the colon, got {wait!r}") from None
    factory = strategy_named(name, key="--rule")
    return lambda: StrategyRule(factory(silence_ms), answer_ms)


def default_rules(*, smart_turn: bool) -> tuple[str, ...]:
    """Return the rules that are compared where none is named: ours, and the usual ones."""
    ours = SOFT if SOFT in strategy_names() else PROBABILITY
    usual = (SMART_TURN,) if smart_turn else ()
    return (ours, ADAPTIVE, *(f"{SILENCE}:{ms}" for ms in FIXED_MS), *usual)
