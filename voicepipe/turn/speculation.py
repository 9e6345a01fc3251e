"""The statistics of speculative replies: what they saved, what they cost, whether they pay.

A speculative reply that is kept brings the answer forward; if the user goes on, its tokens are wasted. The statistics
learn from each speculative reply, and from starts that they advised against. Whether the user went on is seen without
spending anything, so speculation resumes as soon as it would have paid.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import Speculation
from voicepipe.turn.settings import SpeculationLimits
from voicepipe.values import replace

if TYPE_CHECKING:
    from voicepipe.turn.turn import Turn

_MEMORY: Final = 0.9
"""The weight of a speculative reply relative to the next one: about 10 of them count."""

_PRIOR_STARTS: Final = 2.0
_PRIOR_USED: Final = 0.5
_PRIOR_SAVED_MS: Final = 300.0
"""The assumption for a provider before its first speculative reply, with the weight of 2 starts. Half are kept, and
save the part of a usual answer that the wait of 500 ms and more hides.
"""

_ANSWERS: Final = 8
_ANSWERS_KNOWN: Final = 3
"""Number of the latest answers from which the duration of an answer is known; fewer than 3 are no evidence."""

_SHARE_TOKENS: Final = 2_000
"""Tokens of a session's replies below which the wasted share is not judged."""


@dataclass(slots=True)
class _Account:
    """One provider's speculative replies, the latest weighing most."""

    starts: float = _PRIOR_STARTS
    used: float = _PRIOR_STARTS * _PRIOR_USED
    saved_ms: float = _PRIOR_STARTS * _PRIOR_USED * _PRIOR_SAVED_MS
    output_tokens: float = 0.0
    """Wasted output tokens."""

    # Bounded: the oldest answer is dropped.
    answers_ms: deque[int] = field(default_factory=lambda: deque(maxlen=_ANSWERS))

    def record(self, *, used: bool, saved_ms: int = 0, output_tokens: int = 0) -> None:
        self.starts = self.starts * _MEMORY + 1
        self.used = self.used * _MEMORY + used
        self.saved_ms = self.saved_ms * _MEMORY + saved_ms
        self.output_tokens = self.output_tokens * _MEMORY + output_tokens

    def pays(self, input_tokens: int, ms_per_1000_tokens: float) -> bool:
        """Return whether one more start is expected to save more than its tokens are worth: both sums are of all
        starts."""
        wasted_tokens = (self.starts - self.used) * input_tokens + self.output_tokens
        return self.saved_ms >= wasted_tokens * ms_per_1000_tokens / 1_000


class SpeculationStats:
    """The statistics of one session. Pure: the same turns give the same advice."""

    def __init__(self) -> None:
        self.total = Speculation()
        self.answer_ms: int | None = None
        """The longest time the current provider takes from the start of a reply to its first audio, in ms; None: not
        known yet. The longest of its latest answers counts: a later answer is played late, while a start that comes too
        soon is only perhaps wasted."""

        self._accounts: dict[str, _Account] = {}  # bounded by the providers that a pool has
        self._provider = ""

    # --- advice -------------------------------------------------------------------------------

    def pays(self, input_tokens: int, limits: SpeculationLimits, used_tokens: int) -> bool:
        """Return whether to start a reply for which the LLM reads `input_tokens`; the session's other replies have read
        and written `used_tokens`.
        """
        wasted, most = self.total.wasted_tokens, limits.max_wasted_tokens
        if most is not None and wasted + input_tokens > most:
            return False
        spent = wasted + used_tokens
        if limits.max_wasted_share is not None and spent >= _SHARE_TOKENS and wasted > limits.max_wasted_share * spent:
            return False
        return self._account().pays(input_tokens, limits.ms_per_1000_tokens)

    # --- results ------------------------------------------------------------------------------

    def llm_requested(self, provider: str) -> None:
        """Record which provider answers: the next reply is expected from it too."""
        self._provider = provider
        self._see_answers()

    def started(self, turn: Turn) -> None:
        """Record that a reply was started before its turn was over."""
        self._add(turn, starts=1)

    def refuse(self, turn: Turn, now_ms: int) -> None:
        """Record that a start was refused, once per pause."""
        self.went_on(turn)
        self._add(turn, refused=1)
        turn.question.refused_start = turn.pause, now_ms

    def went_on(self, turn: Turn) -> None:
        """Record that the user goes on, or went on: a refused start would have been wasted."""
        if turn.question.refused_start is not None:
            turn.question.refused_start = None
            self._account().record(used=False)

    def ended(self, turn: Turn, now_ms: int) -> None:
        """Record that the turn is over: a refused start would have been kept."""
        if turn.question.refused_start is None:
            return
        pause, at_ms = turn.question.refused_start
        if pause != turn.pause:
            self.went_on(turn)
            return
        turn.question.refused_start = None
        head_start_ms = now_ms - at_ms
        saved_ms = head_start_ms if self.answer_ms is None else min(head_start_ms, self.answer_ms)
        self._account().record(used=True, saved_ms=saved_ms)

    def output_released(self, turn: Turn, now_ms: int) -> None:
        """Record that the reply may be played: if it was started early, it is kept."""
        if turn.words or not turn.settings.in_conversation:
            return  # no early start was considered
        ready_ms = turn.marks.get(attribution.FIRST_SOUND if turn.settings.audible else attribution.FIRST_DELTA)
        if ready_ms is not None:
            self._account().answers_ms.append(ready_ms - turn.reply.began_ms)
            self._see_answers()
        if not turn.reply.speculative:
            return
        over_ms = turn.marks.get(attribution.ENDED, now_ms)
        saved_ms = max(0, min(over_ms, now_ms if ready_ms is None else ready_ms) - turn.reply.began_ms)
        turn.reply.speculative = False
        self._account().record(used=True, saved_ms=saved_ms)
        self._add(turn, used=1, saved_ms=saved_ms)

    def dropped(self, turn: Turn) -> None:
        """Record that a reply that was started early is not kept: its tokens are wasted."""
        turn.reply.speculative = False
        tokens, counted = turn.tokens, turn.reply.tokens.input + turn.reply.tokens.output
        self._account().record(used=False, output_tokens=tokens.output)
        wasted = {"wasted_input_tokens": tokens.input, "wasted_output_tokens": tokens.output}
        self._add(turn, **wasted, estimated=0 if counted else 1)

    def _see_answers(self) -> None:
        known = self._account().answers_ms
        self.answer_ms = max(known) if len(known) >= _ANSWERS_KNOWN else None

    def _account(self) -> _Account:
        return self._accounts.setdefault(self._provider, _Account())

    def _add(self, turn: Turn, **more: int) -> None:
        turn.account.speculation = _sum(turn.account.speculation, more)
        self.total = _sum(self.total, more)


def _sum(so_far: Speculation, more: dict[str, int]) -> Speculation:
    estimated = so_far.estimated or bool(more.get("estimated"))
    counts = {name: getattr(so_far, name) + n for name, n in more.items() if name != "estimated"}
    return replace(so_far, estimated=estimated, **counts)
