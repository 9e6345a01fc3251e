"""The transcripts of the user's utterances: those that may still come, and what the client and the conversation get."""

from __future__ import annotations

from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import BeginUtterance, DropUtterance
from voicepipe.turn.context import TurnContext
from voicepipe.turn.conversation import InputAudio, Message
from voicepipe.turn.timers import Due, Timer
from voicepipe.turn.turn import Utterance

REMEMBERED_UTTERANCES: Final = 8
"""Number of the latest utterances that still take a late text; an utterance whose text is awaited is always among them.
"""


class Utterances:
    """Numbers the utterances, and finds one by its number."""

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self._recent: list[Utterance] = []
        self._stt_took_ms: int | None = None
        """How long connecting to the STT took, in ms; None: the STT has no permanent connection, or none yet."""

    def begin(self, audio_start_ms: int, *, aside: bool = False) -> Utterance:
        """Begin a new utterance; the user's audio counts as it from here on. `aside`: the client is not notified of it
        yet.
        """
        item_id = self._context.new_id("item")
        number = self._context.counts["utterance"] = self._context.counts.get("utterance", 0) + 1
        utterance = Utterance(number, item_id, audio_start_ms, aside=aside, stt_hidden_ms=self._stt_took_ms)
        awaited = [u for u in self._recent[: 1 - REMEMBERED_UTTERANCES] if u.committed and u.open]
        self._recent = [*awaited, *self._recent[1 - REMEMBERED_UTTERANCES :], utterance]
        self._context.issue(BeginUtterance(number))
        return utterance

    def drop(self, utterance: Utterance) -> None:
        """Drop an utterance; a late text of it is ignored too."""
        self._recent = [u for u in self._recent if u is not utterance]
        self._context.issue(DropUtterance(utterance.number))

    def find(self, number: int) -> Utterance | None:
        """Return the utterance of that number, if it is remembered."""
        return next((u for u in self._recent if u.number == number), None)

    def item_deleted(self, item_id: str) -> None:
        """Stop writing into an item that the client has deleted."""
        for utterance in self._recent:
            if utterance.item_id == item_id:
                utterance.deleted = utterance.committed

    def stt_connected(self, event: e.TranscriberConnected, now_ms: int) -> None:
        """Record that the STT is connected: later utterances wait for none of it."""
        self._stt_took_ms = event.took_ms
        if self._recent and self._recent[-1].in_progress:
            self._recent[-1].stt_hidden_ms = event.hidden_ms

    def stt_changed(self, event: e.TranscriberChanged, now_ms: int) -> None:
        """Record that another STT transcribes an utterance; a change between two utterances needs no record."""
        utterance = self.find(event.utterance)
        if utterance is not None and utterance.in_progress:
            utterance.stt_changes.append(event)

    @property
    def pending(self) -> bool:
        """Return whether the transcript of a committed utterance is still to come."""
        return any(u.committed and not u.known for u in self._recent)


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
    utterance.provisional = False
    if context.timers.clear(Timer(Due.FINAL_TEXT, utterance.number)):
        context.learned.finals.note(provider, now_ms - utterance.awaited_from_ms)


def use_interim(utterance: Utterance) -> bool:
    """Use the interim text until the transcriber sends more; return whether there is any."""
    if utterance.known or not utterance.interim.strip():
        return False
    utterance.answered_pause, utterance.text = utterance.pauses, utterance.interim.strip()
    utterance.provisional = True
    return True


def write_down(context: TurnContext, utterance: Utterance) -> None:
    """Put the words into the conversation, and send them to the client once they are final."""
    text = utterance.text
    if not utterance.deleted:
        context.conversation.put(Message(utterance.item_id, "user", (InputAudio(text),)))
    if utterance.done or utterance.open:
        return
    utterance.done = True
    show(context, utterance, text)
    if _is_sent(context, utterance):
        context.notify(a.TranscriptDone(utterance.item_id, text, utterance.speech_ms))


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
    if utterance.provisional:
        utterance.provisional = False
    else:
        utterance.failed = why
    if not utterance.committed:
        return
    context.timers.clear(Timer(Due.TRANSCRIPT, utterance.number))
    if not utterance.failed:
        write_down(context, utterance)
        return
    utterance.done = True
    if _is_sent(context, utterance):
        context.notify(a.TranscriptFailed(utterance.item_id, why))


def _is_sent(context: TurnContext, utterance: Utterance) -> bool:
    """Return whether the client gets the transcript: the client requested it, and has not deleted its item."""
    return context.settings.transcribe and not utterance.aside and not utterance.deleted
