"""Recognize the first token of an answer, and an answer without one."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from voicepipe.errors import StageBroken, StageError, StageRefused
from voicepipe.ports.model import CallDelta, Finished, ModelEvent, ModelRequest, TextDelta
from voicepipe.ports.speech_text import ClauseNormalizer

MAX_UNSPOKEN_CHARS: Final = 1_000
"""Characters without anything to say, as in a block of code, after which the answer counts as begun."""

_PLAIN: Final = re.compile(r"\s*[^\W_][\w\s.,!?'-]*")
"""Most first texts: words without markup."""

_OPEN_TAG: Final = re.compile(r"</?[A-Za-z][^<>]*$")


class FirstToken:
    """Finds the first token of one answer: a tool call or text. Blank and invisible characters are none; in an answer
    that is spoken, nor is text of which nothing can be spoken, such as markup, an emoji or a block of code.

    In an answer that may be empty all visible text is one, and so is its regular end.
    """

    __slots__ = ("_is_spoken", "_may_be_empty", "_text", "found")

    def __init__(self, *, is_spoken: bool, may_be_empty: bool = False) -> None:
        self._is_spoken, self._may_be_empty = is_spoken and not may_be_empty, may_be_empty
        self._text, self.found = "", False

    @classmethod
    def of(cls, request: ModelRequest) -> FirstToken:
        """Return what finds the first token of the answer to this request."""
        return cls(is_spoken=request.is_spoken, may_be_empty=request.may_be_empty)

    def look(self, event: ModelEvent) -> bool:
        """Return whether the first token has come, with this event at the latest."""
        if not self.found:
            match event:
                case TextDelta():
                    self.found = self._has_token(event.text)
                case CallDelta():
                    self.found = True
                case Finished("stop"):
                    self.found = self._may_be_empty
                case _:
                    pass
        return self.found

    def _has_token(self, text: str) -> bool:
        if not self._text and _PLAIN.fullmatch(text):
            return True
        if not self._is_spoken:
            return any(not c.isspace() and unicodedata.category(c) != "Cf" for c in text)
        self._text += text
        if len(self._text) > MAX_UNSPOKEN_CHARS:
            return True
        # Only a letter or a digit can be spoken, so most markup needs no look at the whole text.
        return any(map(str.isalnum, text)) and bool(ClauseNormalizer(None).read(_OPEN_TAG.sub("", self._text)))


def empty_answer(provider: str, finished: Finished) -> StageError:
    """Return the failure of a complete answer that has neither text nor a tool call.

    A filter judges the request, not the provider's health: its error is one that no circuit breaker counts.
    """
    if finished.reason == "content_filter":
        why = "the provider's content filter blocked the answer"
        return StageRefused("llm", provider=provider, why=why, retryable=False)
    why = f"the answer is empty (finish reason {finished.reason})"
    return StageBroken("llm", provider=provider, why=why, retryable=True)
