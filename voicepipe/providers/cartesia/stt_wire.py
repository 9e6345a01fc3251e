"""Convert Cartesia's messages of either mode to segments. No message has the positions of its words in the audio.

Source: Cartesia API reference 2026-03-01, "Realtime Speech-to-Text (Auto)" and "(Manual)". The docs do not define where
    word times of the latter begin to count, so the adapter ignores them.
"""

from __future__ import annotations

import msgspec

from voicepipe.providers.net import failures
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.net.multiplex import decoded
from voicepipe.providers.stt.segment_assembler import Segment

FINALIZE = "finalize"
CLOSE = "close"
CLOSE_TURNS = '{"type":"close"}'


class _Message(msgspec.Struct):
    type: str
    text: str = ""
    transcript: str = ""
    is_final: bool = False
    language: str | None = None


_message = msgspec.json.Decoder(_Message)


def _read(address: ProviderAddress, message: str | bytes) -> _Message:
    read = decoded(address, _message, message)
    if read.type == "error":
        raise failures.in_band(address, str(message).encode())
    return read


class Turns:
    """The turns of one stream (Auto). Each message has the whole text of its turn."""

    idle = True
    """False: the vendor answers no message here."""

    def __init__(self, address: ProviderAddress, ends: dict[str, float]) -> None:
        """`ends`: the least probability of the end that each end event stands for."""
        self._address, self._ends = address, ends
        self._start = 0

    def read(self, message: str | bytes, upto: int) -> Segment | None:
        """Return the segment of a message; None for a message without one.

        Vendors add message types without notice: an unknown type is ignored.

        Raises:
            StageError: it is an error, or not a message.
        """
        read = _read(self._address, message)
        if read.type != "turn.update" and read.type not in self._ends:
            return None
        # After an end that is only expected, either the end has the same text, or the turn goes on and its text is sent
        # again.
        ends = read.type in self._ends
        start = min(self._start, upto)
        if read.type == "turn.end":
            self._start = upto
        return Segment(
            start=start,
            end=upto,
            text=read.transcript.strip(),
            final=ends,
            speech_ended=ends,
            end_probability=self._ends.get(read.type),
        )


class Chunks:
    """The texts of one stream (Manual). Each continues where the previous one ended, inside a word or not, until a
    flush."""

    idle = False
    """`finalize` is answered even without speech."""

    def __init__(self, address: ProviderAddress) -> None:
        self._address = address
        self._start = 0
        self._text = ""
        self._language: str | None = None

    def read(self, message: str | bytes, upto: int) -> Segment | None:
        """Return the segment as in `Turns.read`."""
        read = _read(self._address, message)
        match read.type:
            case "transcript":
                text = self._text + read.text
                self._language = read.language or self._language
                if read.is_final:
                    self._text = text
                # A final text may have audio without text behind it: only `flush_done` marks the text as complete.
                return Segment(start=min(self._start, upto), end=upto, text=text.strip())
            case "flush_done":
                start, text = min(self._start, upto), self._text.strip()
                self._start, self._text = upto, ""
                return Segment(start=start, end=upto, text=text, final=True, requested=True, language=self._language)
            case _:
                return None
