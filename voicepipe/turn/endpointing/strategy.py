"""The port `EndpointStrategy`: from the evidence of a pause to the silence after which each next step is due.

A strategy is part of the core. It is pure: no I/O, no clock, no chance, no state from one call to the next. The same
evidence always gives the same decision, so that a journal can be replayed. It is quick: the core calls it with each
20 ms of silence, on the event loop of all sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from voicepipe.values import replace

MAX_WAIT_MS: Final = 60_000
"""The longest wait that a strategy may declare."""

MAX_REVERSIBLE_MS: Final = 2_000
"""The longest time for which an answer that is audible may be taken back: its audio is retained so long."""


class Evidence(Struct, frozen=True, kw_only=True):
    """The evidence during a pause of whether the user has finished. The defaults are no evidence."""

    silence_ms: int = 0
    """How long the pause has lasted, from the last voiced sample."""

    noticed_ms: int = 0
    """How long the pause had lasted when the VAD reported it: about 80 ms, and up to 400 ms where noise or a fading
    voice hides the last word.
    """

    speech_ms: int = 0
    """How long the utterance lasted up to this pause, with its inner pauses and the padding before it."""

    text: str = ""
    """The words of the utterance up to this pause; empty until the STT has returned them."""

    interim_text: str = ""
    """The latest partial transcript of the utterance. It may change; empty where the STT sends none."""

    language: str | None = None
    """The language of `text`, BCP-47, as the STT detected it or the session sets it."""

    telephone: bool = False
    """Whether the user's audio comes from a telephone: G.711 at 8 kHz."""

    after_question: bool = False
    """Whether the agent's latest sentence was a question; known together with `text`."""

    unfinished: float = 0.0
    """How unfinished the words sound, -1 to 1 (`completeness.unfinished`)."""

    longest_pause_ms: int = 0
    """The longest of the user's recent pauses that were not the end, in ms."""

    n_resumed: int = 0
    """How often the user has gone on in this session after an answer had begun softly (`Decision.reversible_ms`)."""

    answer_ms: int | None = None
    """How long an answer takes from the LLM request to its first audio, in ms; None: not known yet."""

    scores: tuple[tuple[str, float], ...] = ()
    """(name, score) of each model outside the core that has judged this pause (`events.EndpointScored`)."""

    def score(self, name: str) -> float | None:
        """Return the score of that name, or None: there is none for this pause, or not yet."""
        return dict(self.scores).get(name)


NOTHING: Final = Evidence()


class Decision(Struct, frozen=True):
    """The silence, in ms since the last voiced sample, after which each step is due: start <= audible <= effects and
    final.

    More evidence may come while the silence lasts; the latest decision counts.
    """

    start_ms: int
    """Work on the answer begins, if the agent's settings allow that before the end of the turn. Nothing of it leaves
    the server, and a user who goes on discards it.
    """

    audible_ms: int
    """The turn is over: the client is notified, and the answer may be audible. A user who goes on before the answer is
    audible still continues this turn: the answer is dropped, and one to all that was said takes its place.
    """

    final_ms: int | None = None
    """The end is irrevocable: what the user says from now on is another turn, although no answer is audible yet. None:
    the end is irrevocable once the answer has been audible for `reversible_ms`, which it is at the latest with any
    other value, too.
    """

    effects_ms: int | None = None
    """Function calls, and the turn's outcome, may leave the server. None: with `audible_ms`."""

    reversible_ms: int = 0
    """How long after the answer's first audible sample the end may be taken back, in ms: a soft start. The user's voice
    then stops the answer at once and continues the same turn. 0: never.
    """

    def irrevocable(self) -> Decision:
        """Return the decision for a session in which no end can be taken back: the answer waits for `effects_ms`."""
        audible_ms = self.audible_ms if self.effects_ms is None else self.effects_ms
        return replace(self, audible_ms=audible_ms, effects_ms=None, reversible_ms=0)


class EndpointStrategy(Protocol):
    """Decides when the user has finished. One instance serves one session, until the session's settings change.

    A strategy that raises, or decides what no turn can do, is replaced by `silence` for the rest of the session. That
    is counted and logged; the turn goes on.
    """

    @property
    def max_wait_ms(self) -> int:
        """Return the longest `audible_ms` and `effects_ms` of any decision, at most `MAX_WAIT_MS`.

        The turn ends shortly after that by the clock alone, should the VAD send nothing more.
        """
        ...

    def decide(self, evidence: Evidence) -> Decision:
        """Return when each step is due, in whole ms. Takes well below 1 ms."""
        ...


StrategyFactory = Callable[[int], EndpointStrategy]
"""silence_ms -> a strategy. `silence_ms` is the wait that operator or client want where the evidence shows nothing."""

Strategies = Mapping[str, StrategyFactory]
"""By name, as in the setting `end_of_turn`."""
