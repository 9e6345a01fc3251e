"""Render notifications that only opted-in clients get: each as its event."""

from __future__ import annotations

from voicepipe.protocol.extensions import (
    AgentDucked,
    AgentInterrupted,
    AgentUnducked,
    ServerExtension,
    TurnAction,
    TurnMark,
    TurnStage,
)
from voicepipe.turn import notifications as notices

ExtensionNotification = (
    notices.TurnMarked
    | notices.StageJudged
    | notices.ActionTaken
    | notices.AgentDucked
    | notices.AgentUnducked
    | notices.AgentInterrupted
)
"""The core sends these only in sessions whose client has opted in."""


def event_of(what: ExtensionNotification, event_id: str) -> ServerExtension:
    """Return the event of a notification."""
    match what:
        case notices.TurnMarked(turn_id, revision, mark, at_ms):
            return TurnMark(event_id=event_id, turn_id=turn_id, revision=revision, mark=mark, at_ms=at_ms)
        case notices.StageJudged():
            return _turn_stage(what, event_id)
        case notices.ActionTaken(turn_id, revision, action):
            return TurnAction(event_id=event_id, turn_id=turn_id, revision=revision, action=action)
        case notices.AgentDucked(turn_id, item_id):
            return AgentDucked(event_id=event_id, turn_id=turn_id, item_id=item_id)
        case notices.AgentUnducked(turn_id, item_id, reason, after_ms):
            return AgentUnducked(event_id=event_id, turn_id=turn_id, item_id=item_id, reason=reason, after_ms=after_ms)
        case notices.AgentInterrupted(turn_id, item_id, reason, after_ms):
            return AgentInterrupted(
                event_id=event_id, turn_id=turn_id, item_id=item_id, reason=reason, after_ms=after_ms
            )


def _turn_stage(what: notices.StageJudged, event_id: str) -> TurnStage:
    span = what.span
    return TurnStage(
        event_id=event_id,
        turn_id=what.turn_id,
        revision=what.revision,
        stage=span.stage,
        duration_ms=span.duration_ms,
        limit_ms=span.limit_ms,
        verdict=span.verdict,
        owner=span.owner,
    )
