"""The transcript of an utterance: when it is late or lost, and what the client and the conversation get of it."""

from __future__ import annotations

from voicepipe.turn import notifications as a
from voicepipe.turn.commands import EndUtterance
from voicepipe.turn.context import Due, Timer, TurnContext
from voicepipe.turn.conversation import InputAudio, Message, Part
from voicepipe.turn.states import TranscriptState
from voicepipe.turn.turn import Utterance
from voicepipe.values import replace


def common_words(older: str, newer: str) -> str:
    """Return the words that both texts begin with; the last word, which may still grow, is left out."""
    pairs = enumerate(zip(older, newer, strict=False))
    same = newer[: next((i for i, (x, y) in pairs if x != y), min(len(older), len(newer)))]
    return same[: same.rfind(" ")] if " " in same else ""


# --- one transcript ---------------------------------------------------------------------------


def await_text(context: TurnContext, utterance: Utterance, t0_ms: int, now_ms: int) -> None:
    """Start the timeout after a text was requested: when it is over, the interim text counts."""
    utterance.awaited_from_ms, due_ms = context.learned.finals.due_ms(t0_ms, now_ms)
    context.timers.set(Timer(Due.FINAL_TEXT, utterance.number), due_ms)


def text_came(context: TurnContext, utterance: Utterance, provider: str, now_ms: int) -> None:
    """Record that the transcriber has answered its latest flush."""
    utterance.text_is_interim = False
    if context.timers.clear(Timer(Due.FINAL_TEXT, utterance.number)):
        context.learned.finals.record(provider, now_ms - utterance.awaited_from_ms)


def waited_for(utterance: Utterance, now_ms: int) -> str:
    """Return the STT whose text was awaited longer than that of the one that has sent it now; empty: there is none."""
    own_ms = now_ms - utterance.stt_changed_ms
    if not utterance.stt_changes or utterance.stt_changed_ms - utterance.awaited_from_ms <= own_ms:
        return ""
    return utterance.stt_changes[-1].waited_for


def use_interim(utterance: Utterance) -> bool:
    """Use the interim text until the transcriber sends more; return whether there is any."""
    if utterance.known or not utterance.interim.strip():
        return False
    utterance.answered_pause, utterance.text = utterance.pauses, utterance.interim.strip()
    utterance.text_is_interim = True
    return True


def write_down(context: TurnContext, utterance: Utterance) -> None:
    """Put the words into the conversation, and send them to the client once they are final."""
    text = utterance.text
    if not utterance.deleted:
        context.conversation.put(Message(utterance.item_id, "user", _with_text(context, utterance.item_id, text)))
    if utterance.done or utterance.open:
        return
    utterance.done = True
    show(context, utterance, text)
    if _is_sent(context, utterance):
        context.notify(a.TranscriptDone(utterance.item_id, text, utterance.speech_ms))


def _with_text(context: TurnContext, item_id: str, text: str) -> tuple[Part, ...]:
    """Return the parts of an item with the text of its audio. A client's item may have other parts too; the
    text of several recordings stands in the first.
    """
    item = context.conversation.find(item_id)
    if not isinstance(item, Message) or len(item.parts) < 2:
        return (InputAudio(text),)
    texts = iter((text,))
    return tuple(
        InputAudio(next(texts, "")) if isinstance(part, InputAudio) and not part.transcript else part
        for part in item.parts
    )


def commit_sound(context: TurnContext, utterance: Utterance) -> None:
    """Make a sound without words an item: the client was notified of its start. No LLM reads the item."""
    utterance.unreported, utterance.committed, utterance.done = False, True, True
    utterance.answered_pause = utterance.pauses  # nothing waits for a text that has not come
    context.issue(EndUtterance(utterance.number))
    item = Message(utterance.item_id, "user", (InputAudio(None),), hidden_from_llm=True)
    previous = context.join(item)
    context.notify(a.AudioCommitted(utterance.item_id, previous))
    context.notify(a.ItemAdded(item, previous))
    context.conversation.put(replace(item, parts=(InputAudio(utterance.text),)))
    if context.settings.transcribe:
        context.notify(a.TranscriptDone(utterance.item_id, utterance.text, utterance.speech_ms))


def show(context: TurnContext, utterance: Utterance, text: str) -> None:
    """Send the client what is new in this text: text that was shown is never rewritten."""
    fits = text.startswith(utterance.sent_text) and len(text) > len(utterance.sent_text)
    if not _is_sent(context, utterance) or not fits:
        return
    context.notify(a.TranscriptDelta(utterance.item_id, text[len(utterance.sent_text) :]))
    utterance.sent_text = text


def lose(context: TurnContext, utterance: Utterance, why: str) -> None:
    """Stop waiting for text: the interim text becomes final; without any the transcript is lost."""
    context.timers.clear(Timer(Due.FINAL_TEXT, utterance.number))
    if utterance.transcript is not TranscriptState.PROVISIONAL:  # also if only an earlier pause's text is known
        utterance.failed = why
    utterance.text_is_interim = False
    if not utterance.committed:
        return
    context.timers.clear(Timer(Due.TRANSCRIPT, utterance.number))
    if utterance.transcript is not TranscriptState.LOST:
        write_down(context, utterance)
        return
    utterance.done = True
    if _is_sent(context, utterance):
        context.notify(a.TranscriptFailed(utterance.item_id, why))


def _is_sent(context: TurnContext, utterance: Utterance) -> bool:
    """Return whether the client gets the transcript: the client requested it, and has not deleted its item."""
    return context.settings.transcribe and not utterance.unreported and not utterance.deleted
