"""Estimate how much audio has been played: audio plays in real time, unless the client reports otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from voicepipe.turn.record import attribution
from voicepipe.turn.turn import Turn


@dataclass(slots=True)
class Playback:
    """A model of the client's loudspeaker, as far as the core knows: it starts at once and never pauses."""

    ends_ms: int = 0
    """Session time at which all sent audio has been played."""

    prompt_ends_ms: int = 0
    """The same without playback reports: reports are believed within a limit from this time."""

    def send(self, duration_ms: int, now_ms: int) -> int:
        """Queue audio after what is playing; return the instant at which it begins to play."""
        starts_ms = max(self.ends_ms, now_ms)
        self.ends_ms = starts_ms + duration_ms
        self.prompt_ends_ms = max(self.prompt_ends_ms, now_ms) + duration_ms
        return starts_ms

    def resume(self, running: Iterable[Turn], missed: Mapping[int, int], now_ms: int, grace_ms: int) -> None:
        """Resume playback after a reconnect: what had not arrived, turn -> ms of its audio, plays from now on."""
        ends_ms = now_ms
        for turn in sorted(running, key=lambda turn: turn.audio.plays_until_ms):
            missed_ms = missed.get(turn.number, 0)
            ends_ms += missed_ms
            if missed_ms:
                _mark_missed(turn, missed_ms, now_ms)
                turn.audio.plays_until_ms = max(turn.audio.plays_until_ms, ends_ms)
            turn.audio.latest_ms = max(turn.audio.latest_ms, turn.audio.plays_until_ms + grace_ms)
        self.ends_ms, self.prompt_ends_ms = max(self.ends_ms, ends_ms), max(self.prompt_ends_ms, ends_ms)

    def flush(self, until_ms: int) -> None:
        """Drop what the client would have played after this instant."""
        self.ends_ms = min(self.ends_ms, until_ms)
        self.prompt_ends_ms = min(self.prompt_ends_ms, until_ms)


def _mark_missed(turn: Turn, missed_ms: int, now_ms: int) -> None:
    """Move the first audible sample to now, at the earliest, if it was sent and had not arrived."""
    arrived_ms, first_audible_ms = turn.audio.sent_ms - missed_ms, turn.marks.get(attribution.FIRST_AUDIBLE)
    if (
        turn.audio.reported
        or first_audible_ms is None
        or turn.audio.audible_at_ms is None
        or arrived_ms > turn.audio.audible_at_ms
    ):
        return
    turn.marks[attribution.FIRST_AUDIBLE] = max(first_audible_ms, now_ms + turn.audio.audible_at_ms - arrived_ms)


def believed_ms(turn: Turn, played_ms: int) -> int:
    """Return a reported playback position clamped to what is possible: from 0 to what was sent."""
    return min(max(0, played_ms), turn.audio.sent_ms)


def note_audible(turn: Turn, played_ms: int, input_ms: int, now_ms: int) -> bool:
    """Stamp when the reply's first audible sample was played, by the client's report; return False if it was known.

    Both ends of the wait are positions in the user's own audio: `input_ms` less what has played since that sample, and
    t0. No clock but the client's is involved, and the network round trip counts. For a turn without t0 in the user's
    audio (there was no speech) the report's arrival counts. Impossible values are clamped: nothing is played before it
    was sent, nor after it was reported.
    """
    audible_ms, sent_ms = turn.audio.audible_at_ms, turn.marks.get(attribution.FIRST_SENT)
    if turn.audio.reported or audible_ms is None or sent_ms is None or played_ms < audible_ms:
        return False
    since_ms = played_ms - audible_ms
    first_audible_ms = now_ms - since_ms
    if turn.question.t0_audio_ms is not None:
        first_audible_ms = turn.marks[attribution.VOICED_LAST] + input_ms - since_ms - turn.question.t0_audio_ms
    turn.marks[attribution.FIRST_AUDIBLE] = min(max(first_audible_ms, sent_ms), now_ms)
    turn.audio.reported = True
    return True


def move_end(turn: Turn, played_ms: int, running: Iterable[Turn], now_ms: int) -> None:
    """Move the end of playback: `played_ms` has been played by now, so the rest, and all audio after it, ends
    accordingly.
    """
    ends_ms = now_ms + turn.audio.sent_ms - played_ms
    if not played_ms:
        ends_ms = max(ends_ms, turn.audio.plays_until_ms)  # the reply before it may be playing yet
    later_ms = min(ends_ms, turn.audio.latest_ms) - turn.audio.plays_until_ms
    for each in [
        each for each in running if each.audio.sent_ms and each.audio.plays_until_ms >= turn.audio.plays_until_ms
    ]:
        each.audio.plays_until_ms += later_ms
