"""What a session asks its model."""

from __future__ import annotations

import pytest

from voicepipe.clock import SessionClock
from voicepipe.session.grant import SessionGrant
from voicepipe.session.mind import Mind
from voicepipe.stages.model import Said, Text
from voicepipe.testing.fakes.model import FakeModel
from voicepipe.turn.commands import StartReply
from voicepipe.turn.conversation import InputAudio, Message, OutputAudio
from voicepipe.turn.machine import Core
from voicepipe.turn.settings import ReplySettings, TurnSettings

ASIDE = Message("filler_s_0001", "assistant", (OutputAudio("One moment."),), aside=True)
ASKED = Message("item_s_0001", "user", (InputAudio("What time is it?"),))


def mind() -> Mind:
    grant = SessionGrant(
        session_id="sess_s", project="p", agent="default", model="m", identity=None, config=None, expires_at=0
    )
    return Mind(FakeModel(), "m", grant, Core("sess_s", TurnSettings()), SessionClock())


@pytest.mark.parametrize("left_ms", [None, 400])
def test_the_model_is_told_how_much_time_is_left(left_ms: int | None) -> None:
    """A router hedges by it."""
    order = StartReply(1, 0, "item", ReplySettings(), (), first_output_ms=left_ms)
    assert mind().question(order).deadline_ms == left_ms


def test_what_was_said_aside_is_not_read() -> None:
    question = mind().question(StartReply(1, 0, "item", ReplySettings(), (ASIDE, ASKED)))
    assert question.messages == (Said("user", (Text("What time is it?"),)),)
