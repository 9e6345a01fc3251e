"""Write the user's transcript into the conversation, and send it to the client."""

from __future__ import annotations

from voicepipe.turn import announcements as a
from voicepipe.turn.conversation import InputAudio, Message
from voicepipe.turn.floor import Floor
from voicepipe.turn.timers import Due, Timer
from voicepipe.turn.turns import Utterance


def await_text(floor: Floor, utterance: Utterance, t0_ms: int, now_ms: int) -> None:
    """Start the timeout after a text was requested: when it is over, the interim text counts."""
    utterance.awaited_from_ms, due_ms = floor.finals.due_ms(t0_ms, now_ms)
    floor.timers.set(Timer(Due.FINAL_TEXT, utterance.number), due_ms)


def text_came(floor: Floor, utterance: Utterance, provider: str, now_ms: int) -> None:
    """Record that the transcriber has answered its latest flush."""
    utterance.provisional = False
    if floor.timers.clear(Timer(Due.FINAL_TEXT, utterance.number)):
        floor.finals.note(provider, now_ms - utterance.awaited_from_ms)


def take_guess(utterance: Utterance) -> bool:
    """Use the interim text until the transcriber sends more; return whether there is any."""
    if utterance.known or not utterance.interim.strip():
        return False
    utterance.answered_pause, utterance.text = utterance.pauses, utterance.interim.strip()
    utterance.provisional = True
    return True


def write_down(floor: Floor, utterance: Utterance) -> None:
    """Put the words into the conversation, and send them to the client once they are final."""
    text = utterance.text
    if not utterance.deleted:
        floor.conversation.put(Message(utterance.item_id, "user", (InputAudio(text),)))
    if utterance.done or utterance.open:
        return
    utterance.done = True
    show(floor, utterance, text)
    if _is_shown(floor, utterance):
        floor.say(a.TranscriptDone(utterance.item_id, text, utterance.speech_ms))


def show(floor: Floor, utterance: Utterance, text: str) -> None:
    """Send the client what is new in this text: text that was shown is never rewritten."""
    fits = text.startswith(utterance.shown) and len(text) > len(utterance.shown)
    if not _is_shown(floor, utterance) or not fits:
        return
    floor.say(a.TranscriptDelta(utterance.item_id, text[len(utterance.shown) :]))
    utterance.shown = text


def lose(floor: Floor, utterance: Utterance, why: str) -> None:
    """Stop waiting for text: the interim text becomes final; without any the transcript is lost."""
    floor.timers.clear(Timer(Due.FINAL_TEXT, utterance.number))
    if utterance.provisional:
        utterance.provisional = False
    else:
        utterance.failed = why
    if not utterance.committed:
        return
    floor.timers.clear(Timer(Due.TRANSCRIPT, utterance.number))
    if not utterance.failed:
        write_down(floor, utterance)
        return
    utterance.done = True
    if _is_shown(floor, utterance):
        floor.say(a.TranscriptFailed(utterance.item_id, why))


def _is_shown(floor: Floor, utterance: Utterance) -> bool:
    """Return whether the client gets the transcript: the client requested it, and has not deleted its item."""
    return floor.settings.transcribe and not utterance.aside and not utterance.deleted
