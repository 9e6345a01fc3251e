"""The agent follows the user's language: its voice and instructions are those of the language that the STT detects."""

from __future__ import annotations

from typing import Final

from voicepipe.turn.context import TurnContext
from voicepipe.turn.settings import LanguageSettings, ReplySettings
from voicepipe.values import replace

MIN_CHARS: Final = 8
"""An utterance with fewer characters ("okay", "no") does not change the language: an STT often mistakes it."""


def detected(context: TurnContext, text: str, language: str | None) -> None:
    """Note the language of an utterance, for an agent that follows the user's."""
    if context.settings.language:
        return
    if is_interpreter(context.settings.languages):
        context.user_language = language  # two people in turn: the next word may be the other's, however short
    elif language and (len(text) >= MIN_CHARS or not context.user_language):
        context.user_language = language


def is_interpreter(languages: tuple[LanguageSettings, ...]) -> bool:
    """Return whether the agent answers in another language than the user's."""
    return any(each.user_tag for each in languages)


def spoken_now(context: TurnContext) -> LanguageSettings | None:
    """Return the settings of the language that the user speaks now, of an interpreter those of the other one; None: it
    is none of them."""
    settings = context.settings
    return None if settings.language else _found(settings.languages, context.user_language, of_user=True)


def in_language(context: TurnContext, reply: ReplySettings) -> ReplySettings:
    """Return the reply's settings in the user's language, of an interpreter in the other one. What the client has set
    for this reply stays.
    """
    settings, spoken = context.settings, spoken_now(context)
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


def filler_of(context: TurnContext, reply: ReplySettings) -> str:
    """Return the filler of a reply: its language's, or the agent's; empty: none."""
    spoken = _found(context.settings.languages, reply.language)
    return (spoken.filler if spoken is not None else "") or context.core.budget_actions.filler


def in_that_language(reply: ReplySettings, spoken: LanguageSettings) -> ReplySettings:
    """Return the settings with the voice of a language, for its filler."""
    return replace(reply, language=spoken.tag, voice=_voice(reply, spoken))


def _found(
    languages: tuple[LanguageSettings, ...], tag: str | None, *, of_user: bool = False
) -> LanguageSettings | None:
    """Return the settings for a tag: its own, or those of a tag with the same first part (`de` for `de-AT`).

    `of_user`: the tag is of what the user says.
    """
    requested = (tag or "").lower()
    named = [((each.user_tag if of_user else "") or each.tag, each) for each in languages]
    same = (each for language, each in named if language.lower() == requested)
    primary = (each for language, each in named if requested and _primary(language) == _primary(requested))
    return next(same, None) or next(primary, None)


def _primary(tag: str) -> str:
    return tag.partition("-")[0].lower()


def _voice(usual: ReplySettings, language: LanguageSettings | None) -> str | None:
    return usual.voice if language is None else language.voice or usual.voice


def _instructions(usual: ReplySettings, language: LanguageSettings | None) -> str:
    """Return the agent's instructions, and those of the language behind them: what all share stays a prefix."""
    own = "" if language is None else language.instructions
    return "\n\n".join(filter(None, (usual.instructions, own)))
