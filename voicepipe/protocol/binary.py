"""Binary frames: 8 bytes of header, then audio in the session's format for that direction.

====== ===== ========================================================================================
offset bytes
====== ===== ========================================================================================
0      1     version, 1; no JSON text begins with this byte
1      1     kind: 1 the user's audio (client to server), 2 the agent's audio (server to client)
2      2     stream: of the agent's audio, as `voicepipe.output_audio.started` announced it; else 0
4      4     number: of the agent's audio, this frame's number among all events of the session, which is
             what an `event_id` ends with (there in hexadecimal); else 0
8            pcm16 (little-endian) or G.711; perhaps half a sample at its end, which the next frame completes
====== ===== ========================================================================================

Integers are unsigned and little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from voicepipe.errors import ProtocolError

VERSION: Final = 1
USER, AGENT = 1, 2
"""Values of the kind byte."""

HEADER: Final = Struct("<BBHI")
MAX_STREAM: Final = 0xFFFF
MAX_NUMBER: Final = 0xFFFF_FFFF

_FIRST: Final = bytes((VERSION,))
_USER_HEADER: Final = HEADER.pack(VERSION, USER, 0, 0)


class SoundFrame(bytes):
    """A frame that is sent as a binary message; all other frames are text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AgentSound:
    """A frame of the agent's audio, as a client reads it."""

    stream: int
    number: int
    audio: bytes


def is_binary(raw: bytes) -> bool:
    """Return whether a message is meant as a binary frame."""
    return raw[:1] == _FIRST


def user_frame(audio: bytes) -> bytes:
    """Return the user's audio as a frame, for clients."""
    return _USER_HEADER + audio


def user_audio(frame: bytes) -> bytes:
    """Return the audio in a client's frame.

    Raises:
        ProtocolError: its header is not the header of the user's audio.
    """
    if frame[: HEADER.size] != _USER_HEADER:
        raise ProtocolError(
            f"expected the header {_USER_HEADER.hex(' ')} of a binary frame, got {frame[: HEADER.size].hex(' ')}",
            field=None,
            code="invalid_event",
        )
    return frame[HEADER.size :]


def agent_frame(stream: int, number: int, audio: bytes) -> SoundFrame:
    """Return the agent's audio as a frame."""
    return SoundFrame(HEADER.pack(VERSION, AGENT, stream, number & MAX_NUMBER) + audio)


def agent_sound(frame: bytes) -> AgentSound:
    """Return a server's frame as a client reads it.

    Raises:
        ProtocolError: it is no frame of the agent's audio.
    """
    if len(frame) < HEADER.size or frame[:2] != bytes((VERSION, AGENT)):
        raise ProtocolError(f"expected a frame of the agent's sound, got {frame[: HEADER.size].hex(' ')}", field=None)
    _, _, stream, number = HEADER.unpack_from(frame)
    return AgentSound(stream, number, frame[HEADER.size :])
