"""Keep what is measured of each model: times to the first token, gaps between tokens, output speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from voicepipe.quantile import Sketch
from voicepipe.router.candidate import Candidate
from voicepipe.router.survival import Survival, quantile_ms

MAX_GAPS: Final = 4_096
"""Gaps between tokens stored for a model: the sketch before the last and the last, each half of it."""

GAPS_BETWEEN: Final = 128
"""The p95 of the gaps is computed again after at most this many: computing it takes longer than reading it at every
answer."""

FIRST_GAP_MS: Final = 50.0
"""The p95 of gaps before any was measured."""

SPEED_MEMORY: Final = 0.95
"""An answer's weight relative to the next one: about 20 answers count."""

MIN_SPAN_MS: Final = 20.0
"""A shorter answer shows how it was sent, not how it was written."""


class TokenGaps:
    """The gaps between one model's tokens, from its latest `MAX_GAPS` or fewer."""

    def __init__(self) -> None:
        self._before, self._last = Sketch(), Sketch()
        self._p95_ms, self._due = FIRST_GAP_MS, 1

    def record(self, gap_ms: float) -> None:
        """Record a gap from one token to the next."""
        if self._last.count >= MAX_GAPS // 2:
            self._before, self._last = self._last, Sketch()
        self._last.add(gap_ms)
        self._due -= 1
        if not self._due:
            self._renew()

    def p95_ms(self) -> float:
        """Return the p95 in ms, as of one of the latest `GAPS_BETWEEN`; `FIRST_GAP_MS` without data."""
        return self._p95_ms

    def _renew(self) -> None:
        both = Sketch()
        both.merge(self._before)
        both.merge(self._last)
        self._p95_ms, self._due = both.p95_ms or 0.0, min(both.count, GAPS_BETWEEN)


class OutputSpeed:
    """The output speed of one model: from the first piece of an answer to its last, by its provider's own token count.
    An answer weighs as much as it has tokens."""

    def __init__(self) -> None:
        self._n_gaps = self._sum_ms = 0.0

    def record(self, n_tokens: int, span_ms: float) -> None:
        """Record the number of tokens, and the time from the first to the last."""
        if n_tokens > 1 and span_ms >= MIN_SPAN_MS:
            self._n_gaps = self._n_gaps * SPEED_MEMORY + n_tokens - 1
            self._sum_ms = self._sum_ms * SPEED_MEMORY + span_ms

    @property
    def itl_ms(self) -> float | None:
        """Return the mean time from one token to the next; None: not known."""
        return self._sum_ms / self._n_gaps if self._n_gaps else None

    @property
    def tokens_per_s(self) -> float | None:
        """Return the tokens per second after the first token."""
        return 1_000 * self._n_gaps / self._sum_ms if self._n_gaps else None


class LatencyStats:
    """The times of every model, shared by all pools."""

    def __init__(self) -> None:
        self._survivals: dict[str, Survival] = {}
        self._saved: dict[str, Mapping[str, Sequence[float]]] = {}
        self._paces: dict[str, TokenGaps] = {}
        self._speeds: dict[str, OutputSpeed] = {}

    def survival(self, candidate: Candidate) -> Survival:
        """Return that model's histogram; it starts with its prior at the first call of this method."""
        known = self._survivals.get(candidate.spec)
        if known is None:
            known = self._survivals[candidate.spec] = Survival(candidate.ttft_p50_ms)
            if (saved := self._saved.pop(candidate.spec, None)) is not None:
                known.restore(saved)
        return known

    def survivals(self) -> Mapping[str, Survival]:
        """Return all histograms, by spec."""
        return self._survivals

    def restore(self, saved: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Let each of these models continue from its saved counts, now or at its first request.

        Raises:
            ValueError: some are not such counts; then nothing is changed.
        """
        for learned in saved.values():
            Survival(1.0).restore(learned)
        self._saved = {spec: learned for spec, learned in saved.items() if spec not in self._survivals}
        for spec, known in self._survivals.items():
            if spec in saved:
                known.restore(saved[spec])

    def hinted(self, learned: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """Let models that have not answered here yet continue from the counts of another node.

        Raises:
            ValueError: some are not such counts; then nothing is changed.
        """
        for each in learned.values():
            Survival(1.0).restore(each)
        for spec, counts in learned.items():
            known = self._survivals.get(spec)
            if known is None:
                self._saved[spec] = counts
            elif not known.has_times:
                known.restore(counts)

    def known(self, spec: str) -> Survival | None:
        """Return the histogram of a model by its spec, if there is one."""
        return self._survivals.get(spec)

    def pace(self, candidate: Candidate) -> TokenGaps:
        """Return that model's gaps between tokens."""
        known = self._paces.get(candidate.spec)
        if known is None:
            known = self._paces[candidate.spec] = TokenGaps()
        return known

    def speed(self, spec: str) -> OutputSpeed:
        """Return that model's output speed."""
        return self._speeds.setdefault(spec, OutputSpeed())

    def quantile_ms(self, candidate: Candidate, q: float, now_ms: float) -> float:
        """Return the quantile `q` of the model's time to first token, in ms, at most `HORIZON_MS`."""
        return quantile_ms(self.survival(candidate).curve(now_ms), q)
