"""Let a second model continue an unfinished answer: when the first has stalled, which model, its request, and how the
new text is joined to the text before.

Speech takes 3 to 4 tokens a second and models give 50 to 200, so seconds of audio are soon queued for the user. The
deadline is when the audio runs out, not when the text stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from voicepipe.ports.model import ModelRequest, Said, Text
from voicepipe.router.candidate import Candidate
from voicepipe.router.pool import Pool, SharedStats

GO_ON: Final = (
    "(Your answer above was cut off by a technical fault. Continue it from exactly where it stops, in the same "
    "language and tone. Do not repeat anything, do not greet, and do not mention the interruption.)"
)

LOOKED_BACK: Final = 4_000
"""Characters of the answer so far in which a repetition is looked for."""

SURE_CHARS: Final = 4
"""A repetition of this many characters counts wherever it begins; a shorter one must begin with a word."""

LEAST_STALL_MS: Final = 400
STALL_GAPS: Final = 8
"""No token for this many times the model's p95 gap, and at least `LEAST_STALL_MS`, is a stall."""

SPARE_MS: Final = 150
"""Audio that should be left to play when another model's first words are expected: the synthesizer has to speak them
yet."""


class StallPolicy:
    """Decides after the first token of one answer whether the model has stalled, which model could continue, and how
    long that may wait. Pure: instants are passed in."""

    def __init__(self, pool: Pool, stats: SharedStats) -> None:
        self._pool, self._stats = pool, stats
        self.queued_ms: Callable[[], int] | None = None
        """Returns how much audio of the answer is still to be played, in ms; None: the answer has no audio."""

    def stall_ms(self, speaker: Candidate) -> float:
        """Return how long that model may be silent in its answer."""
        return max(LEAST_STALL_MS, STALL_GAPS * self._stats.latency.pace(speaker).p95_ms())

    def backup(self, speaker: Candidate, now_ms: float) -> Candidate | None:
        """Return the model that would continue: of the healthy ones, the most likely to begin soon."""
        healthy = (each for each in self._pool.candidates if each is not speaker and self._is_healthy(each, now_ms))
        return min(healthy, key=lambda each: self._p95_ms(each, now_ms), default=None)

    def wait_ms(self, speaker: Candidate, silent_ms: float, now_ms: float) -> float:
        """Return how long to wait before another model is asked; 0 or less: not at all.

        Later is better: the model may continue by itself, and a second answer costs money. Where the amount of audio
        left is unknown (a client that reads), another model is asked as soon as the first has stalled.
        """
        left_ms = self.stall_ms(speaker) - silent_ms
        backup = self.backup(speaker, now_ms)
        if left_ms > 0 or self.queued_ms is None or backup is None:
            return left_ms
        return self.queued_ms() - self._p95_ms(backup, now_ms) - SPARE_MS

    def _is_healthy(self, candidate: Candidate, now_ms: float) -> bool:
        return self._stats.breaker(candidate).state(now_ms) == "closed"

    def _p95_ms(self, candidate: Candidate, now_ms: float) -> float:
        return self._stats.latency.quantile_ms(candidate, 0.95, now_ms)


def continued(request: ModelRequest, so_far: str, *, prefills: bool = False) -> ModelRequest:
    """Return the request to the model that continues. Functions are left out: a call may have been decided on unknown
    words.

    Args:
        request: the question that was answered so far.
        so_far: the answer's beginning.
        prefills: the model needs no instruction to continue an answer of another model.
    """
    added = (Said("assistant", (Text(so_far),)), *(() if prefills else (Said("user", (Text(GO_ON),)),)))
    return replace(request, messages=(*request.messages, *added), functions=(), tool_choice="auto")


def takes_prefill(request: ModelRequest) -> bool:
    """Return whether an unfinished answer may be sent as a prefill. Vendors refuse it for answers in a response
    format."""
    return all(name != "response_format" for name, _ in request.passed)


class TextJoiner:
    """Removes from the new text what repeats the old text, and adds a space where one is missing."""

    def __init__(self, so_far: str, *, prefills: bool = False) -> None:
        """`prefills`: the new text continues the old directly. Nothing is repeated, except that some models repeat
        all from the start."""
        self._prefills = prefills
        self._before = so_far if prefills else so_far[-LOOKED_BACK:]
        self._held = ""
        self._joined = False

    def push(self, text: str) -> str:
        """Return the text that can be passed on now; empty while it may still be a repetition."""
        if self._joined:
            return text
        self._held += text
        may_repeat = self._before.startswith(self._held) if self._prefills else self._held in self._before
        return "" if may_repeat else self.finish()

    def finish(self) -> str:
        """Return the text that was held back, joined."""
        held, self._held = self._held, ""
        if self._joined or not held:
            return held
        self._joined = True
        if self._prefills:
            rest = held.removeprefix(self._before)
            return rest.lstrip() if self._before[-1:].isspace() else rest
        repeated = self._repeated(held)
        if repeated:
            return held[repeated:]
        is_bare = self._before and not self._before[-1].isspace() and held[0].isalnum()
        return f" {held}" if is_bare else held

    def _repeated(self, held: str) -> int:
        """Return how many characters at its beginning repeat the end of the old text."""
        for n in range(min(len(held), len(self._before)), 0, -1):
            if self._before.endswith(held[:n]) and (n >= SURE_CHARS or self._begins_word(n)):
                return n
        return 0

    def _begins_word(self, n: int) -> bool:
        before = self._before[: len(self._before) - n]
        return not before or not before[-1].isalnum() or not self._before[-n].isalnum()
