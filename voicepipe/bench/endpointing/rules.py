"""The rules that the bench compares: strategies of the port, and smart-turn's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from voicepipe.bench.endpointing.score import EndpointRule
from voicepipe.bench.endpointing.traces import Pause, PauseStep
from voicepipe.errors import ConfigError
from voicepipe.ports.endpointing import strategy_named
from voicepipe.turn.endpointing.pauses import Pauses
from voicepipe.turn.endpointing.probability import SENTENCE_END, SMART_TURN
from voicepipe.turn.endpointing.strategies import ADAPTIVE, SILENCE, SOFT
from voicepipe.turn.endpointing.strategy import Decision, EndpointStrategy, Evidence
from voicepipe.values import replace

FIXED_MS: Final = (300, 400, 500, 720, 800)

WORDS_MS: Final = 60
"""Time from a pause to its words: a streaming STT's final, 50 ms, as it falls into frames."""

SENTENCE_END_MS: Final = 40
"""Time from the words to the language model's score, on an idle core."""

SMART_TURN_MS: Final = 60
"""Time from the silence at which smart-turn gets a request to its score: 47 ms, as they fall into frames."""

OWN_SMART_TURN_AT_MS: Final = 100

_WITH_SMART_TURN: Final = f"+{SMART_TURN}"

_PIPECAT_AT_MS: Final = 200
_PIPECAT_COMPLETE: Final = 0.5
_PIPECAT_LIMIT_MS: Final = 3_000
"""Pipecat 1.14: its VAD reports the pause after 0.2 s; smart-turn ends the turn from 0.5, or 3 s of silence do."""


class StrategyRule:
    """A strategy of the port, with the evidence of a session; `smart_turn`: and with that model's score."""

    def __init__(self, strategy: EndpointStrategy, answer_ms: int | None, *, smart_turn: bool = False) -> None:
        self._strategy, self._answer_ms, self._smart_turn = strategy, answer_ms, smart_turn
        self._pauses = Pauses()
        self._paused: Pause | None = None
        self._known: Evidence | None = None

    def decide(self, pause: Pause, step: PauseStep) -> Decision:
        """Return the strategy's decision."""
        if pause is not self._paused:
            self._paused = pause
            speech_ms = pause.voiced_ms - pause.began_ms
            noticed_ms = pause.steps[0].silence_ms
            self._pauses.began(speech_ms=speech_ms, noticed_ms=noticed_ms)
        known = evidence(pause, step, smart_turn=self._smart_turn)
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
    """Pipecat's use of smart-turn: one question after 200 ms, and 3 s where its score is that more will come."""

    def decide(self, pause: Pause, step: PauseStep) -> Decision:
        """Return the wait. Work begins with it: Pipecat has no earlier start."""
        score = pause.audio_scores.get(_PIPECAT_AT_MS)
        is_complete = score is not None and score >= _PIPECAT_COMPLETE
        audible_ms = _PIPECAT_AT_MS + SMART_TURN_MS if is_complete else _PIPECAT_LIMIT_MS
        return Decision(audible_ms, audible_ms)

    def resumed(self, pause: Pause) -> None:
        """Do nothing: each pause is judged alone."""


def evidence(pause: Pause, step: PauseStep, *, smart_turn: bool = False) -> Evidence:
    """Return what a session has of a pause at one step: words and scores come when they would.

    `smart_turn`: with that model's score, as with the setting `smart_turn`.
    """
    since_ms = step.silence_ms - pause.steps[0].silence_ms
    scores: list[tuple[str, float]] = []
    if pause.sentence_end is not None and since_ms >= WORDS_MS + SENTENCE_END_MS:
        scores.append((SENTENCE_END, pause.sentence_end))
    score = pause.audio_scores.get(OWN_SMART_TURN_AT_MS)
    if smart_turn and score is not None and step.silence_ms >= OWN_SMART_TURN_AT_MS + SMART_TURN_MS:
        scores.append((SMART_TURN, score))
    return Evidence(silence_ms=step.silence_ms, text=pause.text if since_ms >= WORDS_MS else "", scores=tuple(scores))


def _with_words(decision: Decision, pause: Pause, step: PauseStep) -> Decision:
    """Return the decision, but no start of work before the words are known: there is nothing to answer yet."""
    lacks_words = pause.text != "" and step.silence_ms - pause.steps[0].silence_ms < WORDS_MS
    return replace(decision, start_ms=decision.audible_ms) if lacks_words else decision


def rule_factory(text: str, silence_ms: int, answer_ms: int) -> Callable[[], EndpointRule]:
    """Return what makes the rule of `NAME` or `NAME:SILENCE_MS`, one for each turn. `silence_ms`: where it names none.
    A strategy gets smart-turn's score with `NAME+smart-turn`.

    Raises:
        ConfigError: there is no such rule, or its wait is no number.
    """
    name, _, wait = text.partition(":")
    if name == SMART_TURN:
        return SmartTurnRule
    try:
        silence_ms = int(wait or silence_ms)
    except ValueError:
        raise ConfigError(f"--rule {text}: expected a number of ms after the colon, got {wait!r}") from None
    strategy, has_score, _ = name.partition(_WITH_SMART_TURN)
    factory = strategy_named(strategy, key="--rule")
    return lambda: StrategyRule(factory(silence_ms), answer_ms, smart_turn=bool(has_score))


def default_rules(*, smart_turn: bool) -> tuple[str, ...]:
    """Return the rules that are compared where none is named: ours, and the usual ones."""
    built_in = (SOFT, f"{SOFT}{_WITH_SMART_TURN}", ADAPTIVE) if smart_turn else (SOFT, ADAPTIVE)
    usual = (SMART_TURN,) if smart_turn else ()
    return (*built_in, *(f"{SILENCE}:{ms}" for ms in FIXED_MS), *usual)
