"""How much of what was sent has been heard: sound plays in real time, unless the client says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from voicepipe.turn import budget
from voicepipe.turn.turns import Turn


@dataclass(slots=True)
class Playback:
    """The client's loudspeaker, as far as we can tell from here: it starts at once and never pauses."""

    ends_ms: int = 0
    """Session time at which all that was sent has been played."""

    prompt_ends_ms: int = 0
    """The same if nothing was ever reported: reports are believed within reach of this."""

    def send(self, duration_ms: int, now_ms: int) -> int:
        """Queue sound behind what is playing; returns the instant at which it begins to play."""
        starts_ms = max(self.ends_ms, now_ms)
        self.ends_ms = starts_ms + duration_ms
        self.prompt_ends_ms = max(self.prompt_ends_ms, now_ms) + duration_ms
        return starts_ms

    def resume(self, running: Iterable[Turn], missed: Mapping[int, int], now_ms: int, patience_ms: int) -> None:
        """The client is back and gets what had not arrived, turn -> ms of its sound, which plays from now on."""
        ends_ms = now_ms
        for turn in sorted(running, key=lambda turn: turn.plays_until_ms):
            missed_ms = missed.get(turn.number, 0)
            ends_ms += missed_ms
            if missed_ms:
                _mark_missed(turn, missed_ms, now_ms)
                turn.plays_until_ms = max(turn.plays_until_ms, ends_ms)
            turn.latest_ms = max(turn.latest_ms, turn.plays_until_ms + patience_ms)
        self.ends_ms, self.prompt_ends_ms = max(self.ends_ms, ends_ms), max(self.prompt_ends_ms, ends_ms)

    def flush(self, until_ms: int) -> None:
        """The client dropped what it would have played after this instant."""
        self.ends_ms = min(self.ends_ms, until_ms)
        self.prompt_ends_ms = min(self.prompt_ends_ms, until_ms)


def _mark_missed(turn: Turn, missed_ms: int, now_ms: int) -> None:
    """If the first audible sample was sent and had not arrived it is heard now, at the earliest, for all that we can
    tell."""
    arrived_ms, heard_ms = turn.sent_ms - missed_ms, turn.marks.get(budget.HEARD)
    if turn.reported or heard_ms is None or turn.audible_at_ms is None or arrived_ms > turn.audible_at_ms:
        return
    turn.marks[budget.HEARD] = max(heard_ms, now_ms + turn.audible_at_ms - arrived_ms)


def believed_ms(turn: Turn, played_ms: int) -> int:
    """What can be true of a claim to have played so much of a turn's sound: not more than was sent, not less than
    nothing."""
    return min(max(0, played_ms), turn.sent_ms)


def note_heard(turn: Turn, played_ms: int, input_ms: int, now_ms: int) -> bool:
    """Stamp when the caller heard the reply's first audible sample, by the client's word; False if that is not news.

    Both ends of the wait are positions in the caller's own audio: `input_ms` less what has played since that sample,
    and t0. So no clock but the client's is involved, and the way there and back counts. A turn without t0 in the
    caller's audio (nobody spoke) is told by when the report came. What can't be true is brought to what can: nothing
    is heard before it was sent, nor after it was reported.
    """
    audible_ms, sent_ms = turn.audible_at_ms, turn.marks.get(budget.FIRST_SENT)
    if turn.reported or audible_ms is None or sent_ms is None or played_ms < audible_ms:
        return False
    since_ms = played_ms - audible_ms
    heard_ms = now_ms - since_ms
    if turn.t0_audio_ms is not None:
        heard_ms = turn.marks[budget.VOICED_LAST] + input_ms - since_ms - turn.t0_audio_ms
    turn.marks[budget.HEARD] = min(max(heard_ms, sent_ms), now_ms)
    turn.reported = True
    return True


def move_end(turn: Turn, played_ms: int, running: Iterable[Turn], now_ms: int) -> None:
    """So much has been played by now: the rest of it, and all that is behind it, ends accordingly."""
    ends_ms = now_ms + turn.sent_ms - played_ms
    if not played_ms:
        ends_ms = max(ends_ms, turn.plays_until_ms)  # what is before it may be playing yet
    later_ms = min(ends_ms, turn.latest_ms) - turn.plays_until_ms
    for each in [each for each in running if each.sent_ms and each.plays_until_ms >= turn.plays_until_ms]:
        each.plays_until_ms += later_ms
