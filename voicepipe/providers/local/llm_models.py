"""Facts about the local LLMs that adapter and engine share: SmolLM2, and an operator's GGUF file."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

Messages = tuple[tuple[str, str], ...]
"""(role, text) pairs."""


class LlmProfile(Struct, frozen=True, kw_only=True):
    """The limits of a local LLM, and the examples that it gets."""

    context_tokens: int
    """Tokens of one session: prompt and answer together."""

    output_tokens: int
    """Limit of an answer whose request has none: the answer then ends at its last whole sentence."""

    examples: Messages = ()
    """Answered questions between the instructions and the conversation, which show the model how to answer."""


SMOLLM2: Final = LlmProfile(
    context_tokens=2048,
    output_tokens=60,
    examples=(
        ("user", "What is the capital of Norway?"),
        ("assistant", "The capital of Norway is Oslo."),
        ("user", "How many wheels does a car have?"),
        ("assistant", "A car has four wheels."),
        ("user", "What color is a tomato?"),
        ("assistant", "A tomato is red."),
        ("user", "What is seven plus two?"),
        ("assistant", "Seven plus two is nine."),
        ("user", "What is eight minus three?"),
        ("assistant", "Eight minus three is five."),
        ("user", "What is the opposite of tall?"),
        ("assistant", "The opposite of tall is short."),
        ("user", "What do we call a baby cow?"),
        ("assistant", "A baby cow is called a calf."),
        ("user", "How many letters are in the alphabet?"),
        ("assistant", "The alphabet has 26 letters."),
        ("user", "What do sheep eat?"),
        ("assistant", "Sheep eat grass."),
        ("user", "What day comes after Wednesday?"),
        ("assistant", "Thursday comes after Wednesday."),
    ),
)
"""SmolLM2-135M-Instruct. It follows examples better than instructions: `tests/measure/local_llm.py` counts the right
answers: 39 of the 50 questions that chose the examples, 32 of 50 others (36 and 28 with three examples). 60 tokens are
some 15 s of speech."""

GGUF: Final = LlmProfile(context_tokens=4096, output_tokens=200)
"""Any other file: its model follows instructions and ends its answer itself."""
