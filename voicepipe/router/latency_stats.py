"""A histogram of each model's times to the first speakable token; it forgets, and learns from answers closed early
too.

A loser that is closed after 300 ms has shown only that it takes longer than 300 ms. Leaving it out, or taking the 300
ms for its answer, would make a slow model look fast. So the histogram is a life table: of the calls still silent at
the beginning of a bin, the share that answered within it. Source: Kaplan, Meier, "Nonparametric Estimation from
Incomplete Observations", J. Amer. Statist. Assoc. 53 (1958), with counts that halve every `HALF_LIFE_MS`.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from voicepipe.quantile import Sketch
from voicepipe.router.candidate import Candidate

Curve = npt.NDArray[np.float64]
"""(n_steps,), the share that is still silent after 0, `STEP_MS`, 2 `STEP_MS`, ..."""

N_BINS: Final = 71
EDGES_MS: Final = np.concatenate([[0.0], np.geomspace(40.0, 12_000.0, N_BINS)])
"""(72,), bins grow by 8.5 % from 40 ms to 12 s; the first begins at 0."""

STEP_MS: Final = 10
HORIZON_MS: Final = 5_000
GRID_MS: Final = np.arange(0, HORIZON_MS + 1, STEP_MS, dtype=np.float64)

HALF_LIFE_MS: Final = 90_000
"""A provider's bad minutes last about two; a longer memory detects them late and counts them for too long."""

PRIOR_SAMPLES: Final = 12.0
PRIOR_SIGMA: Final = 0.55
"""Spread of the lognormal around a published median; measured spreads of healthy providers are about 0.5."""

PRIOR_TAIL: Final = 0.015
"""Share of the prior's weight that lies beyond all bins: calls hang."""

WARM_FACTOR: Final = 0.8
"""Speed-up of a model whose provider has cached the session's earlier turns."""

MAX_GAPS: Final = 4_096
"""Gaps between tokens stored for a model: the sketch before the last and the last, each half of it."""

GAPS_BETWEEN: Final = 128
"""The p95 of the gaps is computed again after at most this many: computing it takes longer than reading it at every
answer."""

FIRST_GAP_MS: Final = 50.0
"""The p95 of gaps before any was measured."""

SPEED_MEMORY: Final = 0.95
"""An answer's weight relative to the next one: about 20 answers count."""

LEAST_SPAN_MS: Final = 20.0
"""A shorter answer shows how it was sent, not how it was written."""


class Survival:
    """The distribution of one model's times to the first token."""

    def __init__(self, median_ms: float) -> None:
        spread = PRIOR_SIGMA * math.sqrt(2)
        cumulative = [0.5 * (1 + math.erf(math.log(edge / median_ms) / spread)) for edge in EDGES_MS[1:]]
        spoken = (1 - PRIOR_TAIL) * np.array([0.0, *cumulative])
        self._prior_silent = PRIOR_SAMPLES * (1 - spoken[:-1])
        self._prior_spoke = PRIOR_SAMPLES * np.diff(spoken)
        self._silent = np.zeros(N_BINS)
        self._spoke = np.zeros(N_BINS)
        self._at_ms = 0.0

    def spoke(self, after_ms: float, now_ms: float) -> None:
        """Record an answer that began this long after the request."""
        self._fade(now_ms)
        at = self._bin(after_ms)
        self._silent[: at + 1] += 1
        self._spoke[at] += 1

    def was_silent(self, for_ms: float, now_ms: float) -> None:
        """Record a call that was closed this long after the request, without an answer.

        The bin of that instant counts it for the part that was waited through, as actuaries do. Without that part,
        models that are always closed after the same time would look as if all of them answered then.
        """
        self._fade(now_ms)
        at = self._bin(for_ms)
        self._silent[:at] += 1
        self._silent[at] += min(1.0, (for_ms - EDGES_MS[at]) / (EDGES_MS[at + 1] - EDGES_MS[at]))

    def curve(self, now_ms: float) -> Curve:
        """Return the share of answers that are still silent, on `GRID_MS`. Falls back to the prior as evidence
        fades."""
        fade = self._faded(now_ms)
        silent = self._prior_silent + fade * self._silent
        spoke = self._prior_spoke + fade * self._spoke
        left = np.cumprod(1 - np.minimum(spoke / np.maximum(silent, 1e-9), 1.0))
        curve: Curve = np.interp(GRID_MS, EDGES_MS, np.concatenate([[1.0], left]))
        return curve

    def _fade(self, now_ms: float) -> None:
        fade, self._at_ms = self._faded(now_ms), max(now_ms, self._at_ms)
        self._silent *= fade
        self._spoke *= fade

    def _faded(self, now_ms: float) -> float:
        return float(0.5 ** (max(0.0, now_ms - self._at_ms) / HALF_LIFE_MS))

    @staticmethod
    def _bin(ms: float) -> int:
        return min(int(np.searchsorted(EDGES_MS, ms, "right")) - 1, N_BINS - 1)


class TokenGaps:
    """The gaps between one model's tokens, from its latest `MAX_GAPS` or fewer."""

    def __init__(self) -> None:
        self._before, self._last = Sketch(), Sketch()
        self._p95_ms, self._due = FIRST_GAP_MS, 1

    def note(self, gap_ms: float) -> None:
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

    def note(self, n_tokens: int, span_ms: float) -> None:
        """Record the number of tokens, and the time from the first to the last."""
        if n_tokens > 1 and span_ms >= LEAST_SPAN_MS:
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
        self._paces: dict[str, TokenGaps] = {}
        self._speeds: dict[str, OutputSpeed] = {}

    def survival(self, candidate: Candidate) -> Survival:
        """Return that model's histogram; it starts with its prior at the first call of this method."""
        known = self._survivals.get(candidate.spec)
        if known is None:
            known = self._survivals[candidate.spec] = Survival(candidate.ttft_p50_ms)
        return known

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


def quantile_ms(curve: npt.NDArray[np.floating[Any]], q: float) -> float:
    """Return when a share `q` has answered by this curve, in ms, at most `HORIZON_MS`."""
    reached = np.nonzero(curve <= 1 - q)[0]
    return float(GRID_MS[reached[0]]) if len(reached) else float(HORIZON_MS)


def warmer(curve: Curve) -> Curve:
    """Return the curve of a model that finds the session's earlier turns in its cache."""
    return np.interp(GRID_MS / WARM_FACTOR, GRID_MS, curve)
