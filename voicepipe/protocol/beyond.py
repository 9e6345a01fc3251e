"""Render notifications that only opted-in clients get: each as its event."""

from __future__ import annotations

from voicepipe.protocol.extensions import (
    AgentDucked,
    AgentRestored,
    AgentYielded,
    ServerExtension,
    TurnAction,
    TurnMark,
    TurnVerdict,
)
from voicepipe.turn import announcements as said

Beyond = (
    said.TurnMarked | said.StageJudged | said.ActionTaken | said.AgentDucked | said.AgentRestored | said.AgentYielded
)
"""The core sends these only in sessions whose client has opted in."""


def event_of(what: Beyond, event_id: str) -> ServerExtension:
    """Return the event of a notification."""
    match what:
        case said.TurnMarked(turn_id, revision, mark, at_ms):
            return TurnMark(event_id=event_id, turn_id=turn_id, revision=revision, mark=mark, at_ms=at_ms)
        case said.StageJudged():
            return _verdict(what, event_id)
        case said.ActionTaken(turn_id, revision, action):
            return TurnAction(event_id=event_id, turn_id=turn_id, revision=revision, action=action)
        case said.AgentDucked(turn_id, item_id):
            return AgentDucked(event_id=event_id, turn_id=turn_id, item_id=item_id)
        case said.AgentRestored(turn_id, item_id, kept_by, after_ms):
            return AgentRestored(event_id=event_id, turn_id=turn_id, item_id=item_id, reason=kept_by, after_ms=after_ms)
        case said.AgentYielded(turn_id, item_id, taken_by, after_ms):
            return AgentYielded(event_id=event_id, turn_id=turn_id, item_id=item_id, reason=taken_by, after_ms=after_ms)


def _verdict(what: said.StageJudged, event_id: str) -> TurnVerdict:
    span = what.span
    return TurnVerdict(
        event_id=event_id,
        turn_id=what.turn_id,
        revision=what.revision,
        stage=span.stage,
        duration_ms=span.duration_ms,
        limit_ms=span.limit_ms,
        verdict=span.verdict,
        owner=span.owner,
    )
