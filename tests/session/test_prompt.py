"""What a session sends to its model."""

from __future__ import annotations

import pytest

from voicepipe.clock import SessionClock
from voicepipe.pii.redact import Redactor
from voicepipe.ports.model import Said, Text
from voicepipe.session.grant import SessionGrant
from voicepipe.session.prompt import PromptBuilder
from voicepipe.testing.fakes.model import FakeModel
from voicepipe.turn.commands import StartReply
from voicepipe.turn.conversation import InputAudio, Message, OutputAudio
from voicepipe.turn.core import Core
from voicepipe.turn.settings import ReplySettings, TurnSettings

ASIDE = Message("filler_s_0001", "assistant", (OutputAudio("One moment."),), aside=True)
QUESTION = Message("item_s_0001", "user", (InputAudio("What time is it?"),))


def prompt_builder() -> PromptBuilder:
    grant = SessionGrant(
        session_id="sess_s", project="p", agent="default", model="m", identity=None, config=None, expires_at=0
    )
    return PromptBuilder(FakeModel(), "m", grant, Core("sess_s", TurnSettings()), SessionClock(), Redactor(()))


@pytest.mark.parametrize("left_ms", [None, 400])
def test_request_has_the_time_left(left_ms: int | None) -> None:
    """A router hedges by it."""
    command = StartReply(1, 0, "item", ReplySettings(), (), first_output_ms=left_ms)
    assert prompt_builder().question(command).deadline_ms == left_ms


def test_what_was_said_aside_is_not_read() -> None:
    question = prompt_builder().question(StartReply(1, 0, "item", ReplySettings(), (ASIDE, QUESTION)))
    assert question.messages == (Said("user", (Text("What time is it?"),)),)
