"""Whoever counts turns hears of each once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from voicepipe.telemetry.endings import REMEMBERED, Endings
from voicepipe.telemetry.store import KeptTurn
from voicepipe.testing.records import turn_record


def kept(id: str = "turn_1", project: str = "acme", **changes: Any) -> KeptTurn:
    return KeptTurn(turn_record(id=id, **changes), project, "default", 1_700_000_000_000)


def test_a_turn_is_told_of_when_it_has_ended_and_once() -> None:
    """A record comes anew whenever something more is known, before the end and after."""
    told: list[KeptTurn] = []
    endings = Endings((told.append, told.append))
    endings.hear(kept(outcome=None))
    assert told == []
    for reason in ("", "renewed"):
        endings.hear(kept(reason=reason))
    endings.hear(kept(project="other"))
    assert [(turn.project, turn.record.reason) for turn in told] == [("acme", "")] * 2 + [("other", "")] * 2


def test_what_is_remembered_is_bounded() -> None:
    """A turn that ended thousands ago would be told of again; its records have stopped coming."""
    told: list[KeptTurn] = []
    endings, turn = Endings((told.append,)), kept()
    for n in range(REMEMBERED + 1):
        endings.hear(replace(turn, record=replace(turn.record, id=f"turn_{n}")))
    endings.hear(replace(turn, record=replace(turn.record, id=f"turn_{REMEMBERED}")))
    assert len(told) == REMEMBERED + 1
    endings.hear(replace(turn, record=replace(turn.record, id="turn_0")))
    assert len(told) == REMEMBERED + 2
