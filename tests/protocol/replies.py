"""What tests of events to the client share: items, the settings of a reply, a tone, and a reply that has begun."""

from __future__ import annotations

from typing import Any

import numpy as np

from voicepipe.turn.conversation import FunctionCall, InputAudio, Message
from voicepipe.turn.notifications import ItemAdded, OutputStarted, ResponseStarted
from voicepipe.turn.settings import ReplySettings

USER = Message("item_u", "user", (InputAudio(),))
AGENT = Message("item_a", "assistant", (), "in_progress")
CALL = FunctionCall("item_a_call0", "call_1", "get_weather", "", "in_progress")
REPLY = ReplySettings(voice="alba")

# A `SentEvents` of this folder's conftest, which hands it over by fixtures.
SentEventsOf = Any


def tone(n_samples: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """A 300 Hz tone at 24 kHz, half of full scale."""
    return (16_000 * np.sin(2 * np.pi * 300 * np.arange(n_samples) / 24_000)).astype(np.int16)


def open_reply(sent: SentEventsOf, reply: ReplySettings = REPLY, *, item: Message | FunctionCall = AGENT) -> None:
    """A response with one output item, right after the user's turn."""
    sent.render(ItemAdded(USER, None), ResponseStarted("resp_1", reply, "turn_1"))
    sent.render(OutputStarted("resp_1", item, "item_u"))
