"""The probability that the turn is over, from the words of a pause and the scores of models outside the core.

It is a logistic regression on few features. `python -m tests.measure.end_probability` fits its weights from the table
`tests/data/endpointing_pauses.csv`, and a test fits them again.

It works in each language that is written with sentence punctuation. Without a word list (`vocabularies`) it can't find
a sentence that breaks off at an article or a conjunction. An STT that writes no punctuation leaves the number of words.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from voicepipe.turn.endpointing.completeness import (
    ANSWERED,
    ELLIPSES_AND_DASHES,
    LIKELY_UNFINISHED,
    SPELLING,
    unfinished,
    words_of,
)
from voicepipe.turn.endpointing.completeness import OPEN as OPENING
from voicepipe.turn.endpointing.strategy import Evidence
from voicepipe.turn.endpointing.unspaced import N_UNSPACED_PER_WORD, is_unspaced

SENTENCE_END: Final = "sentence-end"
"""Score: the probability that SmolLM2 ends the sentence after the last nine words, 0 to 1."""

SMART_TURN: Final = "smart-turn"
"""Score: the probability of smart-turn v3.2 that the user has finished, requested after 100 ms of silence, 0 to 1."""

STT_END: Final = "stt-end-of-turn"
"""Score: the probability of the STT's own end-of-turn detection, 0 to 1."""

UNKNOWN: Final = 0.5
"""The probability without words and scores. Ends and inner pauses weigh the same in the fit."""

_TAIL_CHARS: Final = 240
"""Only the end of the text is read, so that a long turn costs no more than a short one: more than `_MAX_WORDS` words.
"""

_MAX_WORDS: Final = 20
"""More words are no more evidence."""

_WHOLE_ANSWER_WORDS: Final = 8
"""A whole answer to the agent's question, "yes", counts as a closed sentence of 8 words: the middle of the orders
in the table. The table has no questions."""

_MIN_SCORE: Final = 0.001
"""Scores are cut to this and to 1 less this: no model is surer."""

_QUOTES: Final = " \"')\u2019\u201d\u00bb\u300d"
_QUESTIONS: Final = tuple("?\uff1f\u061f\u037e")
_CLOSES: Final = tuple(".!\u3002\uff01\uff0e\u0964\u06d4\u0589\u1362")
_GOES_ON: Final = tuple(",;:\uff0c\u3001\uff1b\uff1a\u060c\u061b\u1363")
"""Latin, full-width, Chinese and Japanese, Arabic and Urdu, Greek, Devanagari, Armenian and Ethiopic punctuation."""


class TextEnding(Enum):
    """The end of a text: four classes of punctuation, and none."""

    QUESTION = auto()
    CLOSED = auto()
    GOES_ON = auto()
    BROKEN_OFF = auto()
    """An ellipsis, a dash, a word that needs more after it, or half of a number."""

    NONE = auto()
    """No punctuation: no evidence."""


class Features(Struct, frozen=True, kw_only=True):
    """The evidence of a pause that the regression uses."""

    ending: TextEnding = TextEnding.NONE
    n_words: int = 0
    """0: no words are known."""

    sentence_end: float | None = None
    smart_turn: float | None = None


class Weights(Struct, frozen=True, kw_only=True):
    """Log odds, for each unit of the feature. A weight without its feature is 0."""

    bias: float = 0.0
    question: float = 0.0
    closed: float = 0.0
    goes_on: float = 0.0
    broken_off: float = 0.0
    log_words: float = 0.0
    sentence_end: float = 0.0
    """For the log odds of the score; so is the next."""

    smart_turn: float = 0.0


class WeightSets(Struct, frozen=True, kw_only=True):
    """One set of weights for each combination of scores, so that a score that is late or not installed leaves fitted
    weights.
    """

    words_only: Weights
    with_sentence_end: Weights
    with_smart_turn: Weights
    with_both: Weights
    smart_turn_only: Weights

    def chosen(self, known: Features) -> Weights | None:
        """Return the weights fitted on what is known; None: nothing is."""
        if not known.n_words:
            return None if known.smart_turn is None else self.smart_turn_only
        if known.sentence_end is None:
            return self.words_only if known.smart_turn is None else self.with_smart_turn
        return self.with_sentence_end if known.smart_turn is None else self.with_both


FITTED: Final = WeightSets(
    words_only=Weights(bias=-1.05, question=0.81, closed=0.48, goes_on=-1.53, broken_off=-1.33, log_words=0.63),
    with_sentence_end=Weights(
        bias=-0.21, question=0.56, closed=0.24, goes_on=-1.7, broken_off=-1.36, log_words=0.51, sentence_end=0.18
    ),
    with_smart_turn=Weights(
        bias=-1.42, question=0.67, closed=0.4, goes_on=-1.4, broken_off=-0.57, log_words=0.74, smart_turn=0.24
    ),
    with_both=Weights(
        bias=-0.96,
        question=0.56,
        closed=0.27,
        goes_on=-1.49,
        broken_off=-0.61,
        log_words=0.68,
        sentence_end=0.1,
        smart_turn=0.23,
    ),
    smart_turn_only=Weights(bias=-0.09, smart_turn=0.27),
)
"""The weights that `python -m tests.measure.end_probability` fits."""


def end_probability(evidence: Evidence, fitted: WeightSets = FITTED) -> float:
    """Return the probability that the turn is over, 0 to 1. Ends and inner pauses are taken to be equally frequent.

    The STT's own detection, where there is any, counts as much as all the rest: the two are averaged as log odds. No
    table has its scores, so no weight of it is fitted.
    """
    known = features(evidence)
    weights = fitted.chosen(known)
    odds = [] if weights is None else [log_odds(known, weights)]
    of_stt = evidence.score(STT_END)
    if of_stt is not None:
        odds.append(score_log_odds(of_stt))
    return 1 / (1 + math.exp(-sum(odds) / len(odds))) if odds else UNKNOWN


def is_known(evidence: Evidence) -> bool:
    """Return whether anything distinguishes an end from a pause: how the words end, or a score.

    The number of words alone is nothing: the weights were fitted on an STT that writes punctuation.
    """
    known = features(evidence)
    scores = (known.sentence_end, known.smart_turn, evidence.score(STT_END))
    return known.ending is not TextEnding.NONE or any(score is not None for score in scores)


def features(evidence: Evidence) -> Features:
    """Return the features of a pause. A partial transcript stands in for the final one; its punctuation may still
    change and is no evidence.
    """
    ending, n_words = TextEnding.NONE, 0
    if text := evidence.text[-_TAIL_CHARS:]:
        completeness = unfinished(text, evidence.language, after_question=evidence.after_question)
        ending, n_words = _ending(text, completeness), count_words(text)
        if completeness == ANSWERED:
            ending, n_words = TextEnding.CLOSED, _WHOLE_ANSWER_WORDS
    elif text := evidence.interim_text[-_TAIL_CHARS:]:
        broken_off = _breaks_off(unfinished(text, evidence.language))
        ending, n_words = (TextEnding.BROKEN_OFF if broken_off else TextEnding.NONE), count_words(text)
    return Features(
        ending=ending,
        n_words=n_words,
        sentence_end=evidence.score(SENTENCE_END) if n_words else None,
        smart_turn=evidence.score(SMART_TURN),
    )


def count_words(text: str) -> int:
    """Return the number of words, at most 20. Where words are not spaced, two letters are taken for one."""
    n_unspaced = sum(map(is_unspaced, text))
    spaced = "".join(" " if is_unspaced(char) else char for char in text) if n_unspaced else text
    n_words = len(words_of(spaced)) + math.ceil(n_unspaced / N_UNSPACED_PER_WORD)
    return min(_MAX_WORDS, n_words)


def _ending(text: str, completeness: float) -> TextEnding:
    stripped = text.rstrip(_QUOTES)
    if _breaks_off(completeness) or stripped.endswith(ELLIPSES_AND_DASHES):
        return TextEnding.BROKEN_OFF
    if stripped.endswith(_QUESTIONS):
        return TextEnding.QUESTION
    if stripped.endswith(_CLOSES):
        return TextEnding.CLOSED
    return TextEnding.GOES_ON if stripped.endswith(_GOES_ON) else TextEnding.NONE


def _breaks_off(completeness: float) -> bool:
    return completeness in (OPENING, LIKELY_UNFINISHED, SPELLING)


def score_log_odds(score: float) -> float:
    """Return the log odds of a probability, within the bounds of what a model may claim."""
    score = min(max(score, _MIN_SCORE), 1 - _MIN_SCORE)
    return math.log(score / (1 - score))


def log_odds(known: Features, weights: Weights) -> float:
    """Return the log odds that the turn is over, by these weights."""
    of_ending = {
        TextEnding.QUESTION: weights.question,
        TextEnding.CLOSED: weights.closed,
        TextEnding.GOES_ON: weights.goes_on,
        TextEnding.BROKEN_OFF: weights.broken_off,
        TextEnding.NONE: 0.0,
    }
    odds = weights.bias + of_ending[known.ending] + weights.log_words * math.log(max(1, known.n_words))
    if known.sentence_end is not None:
        odds += weights.sentence_end * score_log_odds(known.sentence_end)
    if known.smart_turn is not None:
        odds += weights.smart_turn * score_log_odds(known.smart_turn)
    return odds
