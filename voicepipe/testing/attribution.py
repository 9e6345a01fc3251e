"""Check turn records: contributions are spans between marks that sum up to the user's latency."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from voicepipe.turn.record import attribution
from voicepipe.turn.record.values import TurnRecord

ENDS = (attribution.FIRST_AUDIBLE, attribution.FIRST_SENT)
"""End of a total: the first audio at the client, or the first text of a reply without audio."""


def problems(record: TurnRecord) -> list[str]:
    """Return what is wrong with a record's contributions; nothing for a correct one."""
    found = [*_of_marks(record), *_of_sums(record)]
    return [f"record of {record.id}, revision {record.revision}: {what}; {_account(record)}" for what in found]


class Attribution:
    """Checks records as they are made."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self.n_checked = 0
        """Records with a total, so far."""

    def watching(self, record_of: Callable[..., TurnRecord]) -> Callable[..., TurnRecord]:
        """Wrap `record_of` in a check of each record."""

        def watched(*args: Any) -> TurnRecord:
            record = record_of(*args)
            self.n_checked += record.total_ms is not None
            self._problems += problems(record)
            return record

        return watched

    def taken(self) -> list[str]:
        """Return the problems since the last call."""
        taken, self._problems = self._problems, []
        return taken


def _of_marks(record: TurnRecord) -> list[str]:
    marks = dict(record.marks)
    found = []
    for part in record.contributions:
        if part.from_mark not in marks or part.to_mark not in marks:
            found.append(f"{part.stage} is no span between marks")
        elif part.duration_ms != marks[part.to_mark] - marks[part.from_mark]:
            found.append(f"{part.stage} is not as long as between its marks")
        if part.duration_ms < 0:
            found.append(f"{part.stage} took negative time")
    for before, after in pairwise(record.contributions):
        apart_ms = marks.get(after.from_mark, 0) - marks.get(before.to_mark, 0)
        if not 0 <= apart_ms <= attribution.UNATTRIBUTED_LIMIT_MS:
            found.append(f"{after.stage} does not begin where {before.stage} ends, but {apart_ms} ms later")
    return found


def _of_sums(record: TurnRecord) -> list[str]:
    if record.total_ms is None:
        return ["parts of no total"] if record.contributions or record.unattributed_ms else []
    marks, found = dict(record.marks), []
    sum_ms = sum(part.duration_ms for part in record.contributions) + record.unattributed_ms
    if sum_ms != record.total_ms:
        found.append(f"its parts make {sum_ms} ms of {record.total_ms} ms")
    if not 0 <= record.unattributed_ms <= attribution.UNATTRIBUTED_LIMIT_MS:
        found.append(f"{record.unattributed_ms} ms are not attributed")
    wait_ms = {marks[end] - marks[attribution.VOICED_LAST] for end in ENDS if end in marks}
    if record.total_ms not in wait_ms:
        found.append(f"its total of {record.total_ms} ms is not from t0 to what was heard")
    return found


def _account(record: TurnRecord) -> str:
    parts = " + ".join(f"{p.stage}({p.from_mark}..{p.to_mark}) {p.duration_ms}" for p in record.contributions)
    sums = f"{record.unattributed_ms} unattributed, total {record.total_ms}"
    return f"{parts or 'no parts'}, {sums}, marks {record.marks}"
