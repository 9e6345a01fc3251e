"""The agent follows the user's language: its voice and instructions are those of the language that the STT detects."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from voicepipe.turn.context import TurnContext
from voicepipe.turn.settings import LanguageSettings, ReplySettings

LEAST_CHARS: Final = 8
"""An utterance with fewer characters ("okay", "no") does not change the language: an STT often mistakes it."""


def detected(context: TurnContext, text: str, language: str | None) -> None:
    """Note the language of an utterance, for an agent that follows the user's."""
    if language and not context.settings.language and (len(text) >= LEAST_CHARS or not context.user_language):
        context.user_language = language


def in_language(context: TurnContext, reply: ReplySettings) -> ReplySettings:
    """Return the reply's settings in the user's language. What the client has set for this reply stays."""
    settings = context.settings
    spoken = None if settings.language else _found(settings.languages, context.user_language)
    before = _found(settings.languages, reply.language)
    if spoken == before or not reply.in_conversation:
        return reply
    voices, instructions = (_voice(settings.reply, before), _instructions(settings.reply, before))
    return replace(
        reply,
        language=None if spoken is None else spoken.tag,
        voice=_voice(settings.reply, spoken) if reply.voice == voices else reply.voice,
        instructions=(
            _instructions(settings.reply, spoken) if reply.instructions == instructions else reply.instructions
        ),
    )


def _found(languages: tuple[LanguageSettings, ...], tag: str | None) -> LanguageSettings | None:
    """Return the settings for a tag: its own, or those of a tag with the same first part (`de` for `de-AT`)."""
    requested = (tag or "").lower()
    same = (each for each in languages if each.tag.lower() == requested)
    primary = (each for each in languages if requested and _primary(each.tag) == _primary(requested))
    return next(same, None) or next(primary, None)


def _primary(tag: str) -> str:
    return tag.partition("-")[0].lower()


def _voice(usual: ReplySettings, language: LanguageSettings | None) -> str | None:
    return usual.voice if language is None else language.voice or usual.voice


def _instructions(usual: ReplySettings, language: LanguageSettings | None) -> str:
    """Return the agent's instructions, and those of the language behind them: what all share stays a prefix."""
    own = "" if language is None else language.instructions
    return "\n\n".join(filter(None, (usual.instructions, own)))
