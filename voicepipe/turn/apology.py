"""Decide which failed answers get an apology, and in which words."""

from __future__ import annotations

from typing import Final

from voicepipe.turn.context import TurnContext
from voicepipe.turn.record.values import FailedStage
from voicepipe.turn.turn import Turn

APOLOGY: Final = "apology"

APOLOGY_KEY: Final = "voicepipe_apology_for"
"""The key in `response.metadata` of an apology that names the failed turn, so that no client takes the apology for an
answer.
"""

WORDS: Final = {
    "en": "Sorry, I can't answer that right now. Please ask me again.",
    "de": "Entschuldigung, das kann ich gerade nicht beantworten. Bitte fragen Sie noch einmal.",
    "fr": "Désolé, je ne peux pas répondre pour le moment. Veuillez répéter votre question.",
    "es": "Lo siento, ahora mismo no puedo responder. Por favor, pregunte otra vez.",
    "it": "Mi dispiace, in questo momento non posso rispondere. Per favore, ripeta la domanda.",
    "pt": "Desculpe, não posso responder agora. Por favor, pergunte outra vez.",
    "nl": "Sorry, daar kan ik nu even geen antwoord op geven. Vraag het me alstublieft nog eens.",
}
"""By the first part of a language's tag. A session without a configured language is taken for English."""


def words_for(context: TurnContext) -> str:
    """Return what to say; empty: nothing."""
    budget_actions = context.core.budget_actions
    if budget_actions.apology or not budget_actions.apologises:
        return budget_actions.apology
    language = (context.settings.language or context.user_language or "en").partition("-")[0].lower()
    return WORDS.get(language, "")


def phrases_of(context: TurnContext) -> tuple[str, ...]:
    """Return all phrases that must be ready to be said at once."""
    fillers = (context.core.budget_actions.filler, *(each.filler for each in context.settings.languages))
    return tuple(words for words in (*fillers, words_for(context)) if words)


def follows_failure(context: TurnContext, turn: Turn, stage: FailedStage) -> bool:
    """Return whether a spoken apology follows this turn's failure in that stage.

    There is none if the client is what failed, nor for an apology that failed. If the TTS failed, there is one only if
    its audio is cached.
    """
    words, reply = words_for(context), turn.settings
    can_be_spoken = stage != "client" and (stage != "tts" or words in context.phrases)
    return bool(words) and can_be_spoken and reply.audible and reply.in_conversation and not turn.words
