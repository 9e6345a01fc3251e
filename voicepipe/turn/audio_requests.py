"""The client's events of the audio buffer, and changed settings: they end or drop the user's turn."""

from __future__ import annotations

from typing import Final

from voicepipe.turn import events as e
from voicepipe.turn import notifications as a
from voicepipe.turn.commands import DropAudio
from voicepipe.turn.context import TurnContext
from voicepipe.turn.record import attribution
from voicepipe.turn.states import UserState
from voicepipe.turn.turn import Turn
from voicepipe.turn.user import UserSide

MIN_COMMIT_MS: Final = 100
"""Shortest audio of a commit, in ms: a shorter one is refused, as the hosted service does."""


class AudioRequests:
    """Handle what the client requests of the user's audio."""

    def __init__(self, context: TurnContext, user: UserSide) -> None:
        self._context, self._user = context, user

    def commit_requested(self, event: e.CommitRequested, now_ms: int) -> Turn | None:
        """End the turn for the client; return it, or None when there was nothing to commit."""
        utterance = self._user.utterance
        open_states = (UserState.SPEAKING, UserState.HOLDING)
        has_speech = utterance is not None and (self._user.manual or self._user.state in open_states)
        if not has_speech or utterance is None or event.buffered_ms < MIN_COMMIT_MS:
            self._context.refuse(
                event.event_id,
                "input_audio_buffer_commit_empty",
                f"expected at least {MIN_COMMIT_MS} ms of audio to commit, got {event.buffered_ms} ms",
            )
            return None
        speaking = self._user.turn if self._user.state in open_states else None
        turn = speaking or self._context.new_turn("commit")
        turn.add(utterance)
        if self._user.state is not UserState.HOLDING or self._user.only_stt_reports:
            utterance.pauses += 1
            utterance.audio_end_ms = utterance.audio_start_ms + event.buffered_ms
            turn.marks[attribution.VOICED_LAST] = now_ms if event.last_voiced_ms is None else event.last_voiced_ms
            turn.question.t0_audio_ms = event.last_voiced_audio_ms
        turn.marks[attribution.END_DUE] = turn.marks[attribution.ENDED] = now_ms
        turn.cause = "commit"
        if speaking is not None:
            self._context.notify(a.InputSpeechStopped(utterance.item_id, utterance.audio_end_ms))
        self._user.commit(turn, utterance, now_ms)
        if speaking is not None:
            self._user.release_turn()
        self._user.begin_manual()
        return turn

    def clear_requested(self) -> Turn | None:
        """Drop the audio that is not committed; return the turn that is dropped with it, if one had begun."""
        dropped = self._user.turn if self._user.state in (UserState.SPEAKING, UserState.HOLDING) else None
        self._context.issue(DropAudio())
        self._context.notify(a.AudioCleared())
        if dropped is not None:
            self._user.drop_turn()
        self._user.begin_manual()
        return dropped

    def settings_changed(self, event: e.SettingsChanged) -> Turn | None:
        """Apply the session's new settings; return the turn that is dropped because detection changed."""
        was_manual = self._user.manual
        self._context.settings = event.settings
        if self._user.manual == was_manual:
            if self._user.manual and self._user.utterance is None:
                self._user.begin_manual()
            return None
        dropped = self._user.turn if self._user.state in (UserState.SPEAKING, UserState.HOLDING) else None
        if dropped is not None:
            self._user.drop_turn()
        if dropped is not None or was_manual:
            self._context.issue(DropAudio())
            self._user.utterance = None
        self._user.begin_manual()
        return dropped
