"""Facts about the local LLMs that adapter and engine share: SmolLM2, and an operator's GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Messages = tuple[tuple[str, str], ...]
"""(role, text) pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmProfile:
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
        ("user", "What is seven plus two?"),
        ("assistant", "Seven plus two is nine."),
        ("user", "What day comes after Wednesday?"),
        ("assistant", "Thursday comes after Wednesday."),
    ),
)
"""SmolLM2-135M-Instruct. It follows examples better than instructions: `tests/measure/local_llm.py` counts the right
answers. 60 tokens are some 15 s of speech."""

GGUF: Final = LlmProfile(context_tokens=4096, output_tokens=200)
"""Any other model: it follows instructions and knows when to stop."""
