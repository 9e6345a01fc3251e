"""Subscribers receive each ended turn once."""

from __future__ import annotations

from typing import Any

from voicepipe.telemetry.ended_turns import MAX_ENDED_TURNS, EndedTurns
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.testing.records import turn_record
from voicepipe.values import replace


def stored_turn(id: str = "turn_1", project: str = "acme", **changes: Any) -> StoredTurn:
    return StoredTurn(turn_record(id=id, **changes), project, "default", 1_700_000_000_000)


def test_a_turn_is_passed_on_once_when_it_has_ended() -> None:
    """A record comes anew whenever something more is known, before the end and after."""
    ended: list[StoredTurn] = []
    endings = EndedTurns((ended.append, ended.append))
    endings.on_record(stored_turn(outcome=None))
    assert ended == []
    for reason in ("", "renewed"):
        endings.on_record(stored_turn(reason=reason))
    endings.on_record(stored_turn(project="other"))
    assert [(turn.project, turn.record.reason) for turn in ended] == [("acme", "")] * 2 + [("other", "")] * 2


def test_what_is_remembered_is_bounded() -> None:
    """A turn that ended thousands of turns ago would be reported again; by then its records have stopped coming."""
    ended: list[StoredTurn] = []
    endings, turn = EndedTurns((ended.append,)), stored_turn()
    for n in range(MAX_ENDED_TURNS + 1):
        endings.on_record(replace(turn, record=replace(turn.record, id=f"turn_{n}")))
    endings.on_record(replace(turn, record=replace(turn.record, id=f"turn_{MAX_ENDED_TURNS}")))
    assert len(ended) == MAX_ENDED_TURNS + 1
    endings.on_record(replace(turn, record=replace(turn.record, id="turn_0")))
    assert len(ended) == MAX_ENDED_TURNS + 2
