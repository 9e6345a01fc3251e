"""Score where sentences end with an LLM on llama.cpp: the probability that the next token is a full stop or ends the
message.
"""

from __future__ import annotations

import math
import re
import threading
from typing import Any, Final

_USER: Final = "<|im_start|>user\n"
"""SmolLM2's chat template: what follows is a user's message."""

_END_OF_MESSAGE: Final = "<|"
"""The beginning of the tokens that end a message."""

_ENDS: Final = (".", "?", "!", "\n")

_N_TOKENS: Final = 60
"""The likeliest next tokens that are summed up. All others together rarely hold 1 % of an end."""

_TAIL_WORDS: Final = 9
_TAIL_CHARS: Final = 80
"""Only the end of a text is read: each token costs 6 ms. On the table of pauses the whole text decides no better."""

_OWN_PUNCTUATION: Final = re.compile(r"[\s.,!?;:\-\u2026]+$")
"""The STT's. It is evidence of its own, and would hide the model's judgement."""


class SentenceEnds:
    """Judges texts in a slot of its own of llama.cpp's server. Safe to use from any thread."""

    def __init__(self, server: Any, *, slot: int) -> None:
        self._server, self._slot = server, slot
        self._lock = threading.Lock()

    def probability(self, text: str) -> float:
        """Return the probability, 0 to 1, that a user's sentence ends after `text`, whose punctuation is dropped.

        Raises:
            RuntimeError: the runtime gave no probabilities.
        """
        tail = " ".join(text[-2 * _TAIL_CHARS :].split()[-_TAIL_WORDS:])[-_TAIL_CHARS:]
        words = _OWN_PUNCTUATION.sub("", tail).replace("<|", "< |")
        with self._lock:
            return sum(math.exp(log_p) for token, log_p in self._next(_USER + words) if _is_end(token))

    def _next(self, prompt: str) -> list[tuple[str, float]]:
        """Return the likeliest next tokens with the natural logarithms of their probabilities."""
        chunks: list[Any] = []

        def on_chunk(chunk: Any) -> bool:
            chunks.append(chunk)
            return False

        self._server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": 1,
                "n_probs": _N_TOKENS,
                "temperature": 0.0,
                "cache_prompt": True,
                "id_slot": self._slot,
                "stream": False,
            },
            on_chunk,
        )
        try:
            top_tokens = chunks[0]["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            return [(each["token"], each["logprob"]) for each in top_tokens]
        except (IndexError, KeyError, TypeError) as error:
            raise RuntimeError("no probabilities") from error


def _is_end(token: str) -> bool:
    """Return whether a token ends the sentence. The token that ends the message has no text."""
    return not token or token.startswith(_END_OF_MESSAGE) or token.lstrip(" ").startswith(_ENDS)
