"""Language models of the eval: one that plays the user, and one that judges what the agent said."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from voicepipe.errors import StageError
from voicepipe.evals.speech import StepSpeech
from voicepipe.ports.model import Content, Model, ModelRequest, Text, TextDelta

END: Final = "HANG UP"

PERSONA_RULES: Final = (
    "You play the person who calls a voice assistant; the assistant's words come to you as the user's messages. Answer "
    "with what the person says next: one or two short spoken sentences, no markup, no stage directions. When the "
    f"person has reached the goal or gives up, answer only {END}. The person: "
)

JUDGE_RULES: Final = (
    "You judge a conversation of a user with a voice assistant. Answer with `yes` if the statement is true of it, or "
    "with `no: ` and a reason in one short sentence. Answer nothing else."
)

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A language model, and the name by which its provider has it."""

    model: Model
    name: str

    async def answer(self, messages: Sequence[tuple[str, str]]) -> str:
        """Return the model's whole answer to (role, text).

        Raises:
            StageError: the provider refused, stalled or broke.
        """
        roles: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
        sent = tuple(Content(roles[role], (Text(text),)) for role, text in messages)
        words = list[str]()
        async with self.model.open(ModelRequest(model=self.name, messages=sent)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    words.append(event.text)
        return "".join(words).strip()


@dataclass(frozen=True, slots=True)
class Persona:
    """Plays the user."""

    model: NamedModel
    speak: Callable[[str], Awaitable[StepSpeech]]

    async def next_words(self, instructions: str, dialogue: Sequence[tuple[str, str]]) -> str:
        """Return what the person says next; empty: the person hangs up.

        Raises:
            StageError: the model failed.
        """
        opening = dialogue if dialogue and dialogue[0][0] == "user" else [("user", "(The call begins.)"), *dialogue]
        words = await self.model.answer([("system", PERSONA_RULES + instructions), *opening])
        return "" if END in words.upper() else words


async def judged(model: NamedModel, dialogue: str, statement: str) -> str:
    """Return why a statement is not true of a conversation; empty when it is true."""
    messages = [("system", JUDGE_RULES), ("user", f"The conversation:\n{dialogue}\n\nThe statement: {statement}")]
    try:
        answer = await model.answer(messages)
    except StageError as failure:
        return f"the judge failed: {failure}"
    found = re.match(r"\W*(yes|no)\b\W*(.*)", answer, re.IGNORECASE | re.DOTALL)
    if found is None:
        return f"expected `yes` or `no` from the judge, got {answer[:200]!r}"
    return "" if found[1].lower() == "yes" else found[2].strip() or "the judge's answer is no"
