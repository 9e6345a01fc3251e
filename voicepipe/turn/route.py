"""Which model answers a turn, which voice speaks it, which ear heard it, and what else was tried for it."""

from __future__ import annotations

from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn.turns import Turn

ACTIONS: Final = {"hedge": "hedge", "replacement": "fallback", "continuation": "continuation"}
"""Role of a call -> what was done to save the budget with it."""


def model_chosen(turn: Turn, fact: e.ModelChosen, now_ms: int) -> None:
    """A router says who answers: the stage is theirs from here on."""
    turn.providers["llm"] = fact.provider
    turn.route = f"{turn.route}; {fact.why}" if turn.route else fact.why


def voice_changed(turn: Turn, fact: e.VoiceChanged, now_ms: int) -> None:
    """A router says who speaks from here on, for the first choice."""
    turn.voiced.move(fact.n_chars, since=turn.providers.get("tts", fact.provider), to=fact.provider)
    turn.providers["tts"] = fact.provider
    why = f"{fact.provider} speaks: {fact.why}"
    turn.route = f"{turn.route}; {why}" if turn.route else why
    turn.actions.append(ACTIONS[fact.role])


def voice_unheard(turn: Turn, fact: e.VoiceUnheard, now_ms: int) -> None:
    """A voice was asked in vain."""
    turn.voiced.waste(fact.provider, fact.n_chars)


def voice_recited(turn: Turn, fact: e.VoiceRecited, now_ms: int) -> None:
    """A voice did not have to be asked."""
    turn.voiced.recite(fact.provider, fact.n_chars)


def voice_reached(turn: Turn, fact: e.VoiceReached, now_ms: int) -> None:
    """The voice has its connection. Of several, the first that was reached is told of."""
    if turn.connect_hidden_ms is None:
        turn.connect_hidden_ms = fact.hidden_ms


def model_joined(turn: Turn, fact: e.ModelJoined, now_ms: int) -> None:
    """Another model is asked for the answer too."""
    turn.actions.append(ACTIONS[fact.role])


def model_attempted(turn: Turn, fact: e.ModelAttempted, now_ms: int) -> None:
    """One of the calls that were made for the answer is over."""
    turn.attempts.append(fact.attempt)
    action = ACTIONS.get(fact.attempt.role, "")
    if action and turn.actions.count(action) < sum(each.role == fact.attempt.role for each in turn.attempts):
        turn.actions.append(action)


def ear_actions(turn: Turn) -> tuple[str, ...]:
    """What was done to hear the caller all the same."""
    return tuple(ACTIONS[each.role] for utterance in turn.utterances for each in utterance.ears)


def whole_route(turn: Turn) -> str:
    """Who stepped in to hear, and why that model and voice."""
    ears = (f"{each.provider} hears: {each.why}" for utterance in turn.utterances for each in utterance.ears)
    return "; ".join([*ears, *([turn.route] if turn.route else [])])
