"""Convert a conversation for APIs that refuse some sequences of roles.

`speeches` makes alternating messages of user and agent for APIs that have only these two roles. A function call is the
agent's; its result comes first in the user's next message. The user's message comes first. Later system messages are
appended to the instructions. `reordered` changes chat messages for strict servers, such as Mistral's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from voicepipe.ports.model import Called, Content, Image, Message, Returned, Text

Piece = Text | Image | Called | Returned

OPENING: Final = "(The user is on the line.)"
"""The user's first message when the agent spoke first; these APIs refuse a conversation that the agent begins."""

_BETWEEN: Final = " "
"""The agent's message between a function's result and a user who interrupted: content-free text."""


@dataclass(slots=True)
class Speech:
    """Consecutive content of one role."""

    role: Literal["user", "assistant"]
    pieces: list[Piece] = field(default_factory=list)


def system(conversation: Iterable[Message]) -> tuple[str, ...]:
    """Return the system messages in order; blank ones are left out."""
    system_messages = (m for m in conversation if isinstance(m, Content) and m.role == "system")
    texts = (" ".join(part.text for part in m.parts if isinstance(part, Text)) for m in system_messages)
    return tuple(text for text in texts if text.strip())


def speeches(conversation: Iterable[Message]) -> list[Speech]:
    """Return the messages of user and agent, alternating, the user first.

    A call without a result, or a result without a call, is left out. So are blank texts, which the APIs refuse.
    """
    conversation = tuple(conversation)
    results = {m.call_id: m for m in conversation if isinstance(m, Returned)}
    made: list[Speech] = [Speech("user")]
    waiting: list[Returned] = []
    back: set[str] = set()
    for message in conversation:
        match message:
            case Returned():
                back.add(message.call_id)
            case Called() if message.call_id in results:
                if all(each.call_id in back for each in waiting):  # made in reaction to the earlier results
                    _give_back(made, waiting)
                if made[-1].role == "user" and not waiting and not made[-1].pieces:
                    made[-1].pieces.append(Text(OPENING))
                _of(made, "assistant").append(message)
                waiting.append(results[message.call_id])
            case Content(role="system"):
                continue
            case Content():
                _give_back(made, waiting)
                spoken = [p for p in message.parts if isinstance(p, Image) or p.text.strip()]
                if spoken:
                    if message.role == "assistant" and not made[-1].pieces:
                        made[-1].pieces.append(Text(OPENING))
                    _of(made, "user" if message.role == "user" else "assistant").extend(spoken)
    _give_back(made, waiting)
    if not made[0].pieces:
        made[0].pieces.append(Text(OPENING))
    return made


def _give_back(made: list[Speech], waiting: list[Returned]) -> None:
    if waiting:
        _of(made, "user").extend(waiting)
        waiting.clear()


def _of(made: list[Speech], role: Literal["user", "assistant"]) -> list[Piece]:
    if made[-1].role != role:
        made.append(Speech(role))
    return made[-1].pieces


def reordered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages in an order that strict servers accept.

    Source: Mistral's refusals, such as "Unexpected role 'user' after role 'tool'".
    """
    written: list[dict[str, Any]] = []
    opening = True
    for message in messages:
        opening = opening and message["role"] == "system"
        if message["role"] == "system" and not opening:
            message = {**message, "role": "user"}
        if message["role"] == "user" and written and written[-1]["role"] == "tool":
            written.append({"role": "assistant", "content": _BETWEEN})
        written.append(message)
    return written
