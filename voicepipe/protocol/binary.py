"""Binary frames: eight bytes of header, then audio as the session's format for that direction has it.

====== ===== ========================================================================================
offset bytes
====== ===== ========================================================================================
0      1     version, 1; no JSON text begins so
1      1     kind: 1 the caller's audio (client to server), 2 the agent's sound (server to client)
2      2     stream: of the agent's sound, as `voicepipe.output_audio.started` announced it; else 0
4      4     number: of the agent's sound, this frame's number among all events of the session, which is
             what an `event_id` ends with (there in hexadecimal); else 0
8            pcm16 (little-endian) or G.711; perhaps half a sample at its end, which the next one completes
====== ===== ========================================================================================

Integers are unsigned and little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from voicepipe.errors import ProtocolError

VERSION: Final = 1
CALLER, AGENT = 1, 2
"""Kinds."""

HEADER: Final = Struct("<BBHI")
MAX_STREAM: Final = 0xFFFF
MAX_NUMBER: Final = 0xFFFF_FFFF

_FIRST: Final = bytes((VERSION,))
_CALLER_HEADER: Final = HEADER.pack(VERSION, CALLER, 0, 0)


class SoundFrame(bytes):
    """A frame that goes out as a binary message; all others are text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AgentSound:
    """A frame of the agent's sound, as a client reads it."""

    stream: int
    number: int
    audio: bytes


def is_binary(raw: bytes) -> bool:
    """Whether a message is meant as a binary frame."""
    return raw[:1] == _FIRST


def caller_frame(audio: bytes) -> bytes:
    """The caller's audio as a frame, for clients."""
    return _CALLER_HEADER + audio


def caller_audio(frame: bytes) -> bytes:
    """The audio in a client's frame.

    Raises:
        ProtocolError: its header is another one than that of the caller's audio.
    """
    if frame[: HEADER.size] != _CALLER_HEADER:
        raise ProtocolError(
            f"expected the header {_CALLER_HEADER.hex(' ')} of a binary frame, got {frame[: HEADER.size].hex(' ')}",
            field=None,
            code="invalid_event",
        )
    return frame[HEADER.size :]


def agent_frame(stream: int, number: int, audio: bytes) -> SoundFrame:
    """The agent's sound as a frame."""
    return SoundFrame(HEADER.pack(VERSION, AGENT, stream, number & MAX_NUMBER) + audio)


def agent_sound(frame: bytes) -> AgentSound:
    """A server's frame, read by a client.

    Raises:
        ProtocolError: it is no frame of the agent's sound.
    """
    if len(frame) < HEADER.size or frame[:2] != bytes((VERSION, AGENT)):
        raise ProtocolError(f"expected a frame of the agent's sound, got {frame[: HEADER.size].hex(' ')}", field=None)
    _, _, stream, number = HEADER.unpack_from(frame)
    return AgentSound(stream, number, frame[HEADER.size :])
