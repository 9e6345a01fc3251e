"""The arm of an A/B experiment in which a turn is."""

from __future__ import annotations

from typing import Final, NamedTuple


class Arm(NamedTuple):
    """An experiment, and the pool to which it sent the request. False: `NO_ARM`."""

    experiment: str
    pool: str

    @classmethod
    def read(cls, text: str) -> Arm:
        """Return the arm of a text, which a column, a query or a journal has: `experiment/pool`, or empty."""
        experiment, _, pool = text.partition("/")
        return cls(experiment, pool)

    def __str__(self) -> str:
        return "/".join(self) if self else ""

    def __bool__(self) -> bool:
        return any(self)


NO_ARM: Final = Arm("", "")
"""That of a turn in no experiment."""
