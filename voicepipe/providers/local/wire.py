"""Messages between an adapter and the engine process on their Unix socket.

A frame is a little-endian uint32, the length of its body in bytes, then the body: one msgpack map with a `type`. One
connection carries one job (`Transcribe`, `Generate`, `Warm`, `Score`, `ScoreAudio`, `Speak`). The request goes up and
replies come down; `FINAL` lists the last ones. Closing the connection cancels the job. `Attach` is the exception: its
connection is a lease that keeps the engine running. On it the engine reports how loading goes, and then how busy its
models are. Audio is raw little-endian int16.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Literal, TypeVar

import msgspec

VERSION: Final = 3
"""Version of these messages. A client does not attach to an engine of another version."""

MAX_FRAME_BYTES: Final = 8 << 20
"""Longer frames are refused unread; the longest valid one is about 1 MB (30 s at 16 kHz)."""

Stage = Literal["stt", "llm", "tts", "endpoint"]
"""`endpoint`: smart-turn, whose file the operator brings along."""

STAGES: Final[tuple[Stage, ...]] = ("stt", "llm", "tts")
"""The stages whose models come along."""

LOAD_S: Final = 4.0
"""How often the engine reports how busy its models are."""

STT_RATE_HZ: Final = 16_000
TTS_RATE_HZ: Final = 24_000

_LENGTH: Final = struct.Struct("<I")


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Keep the engine running while this connection is open, and load these stages. Answered by `LoadProgress`,
    `Ready`, and then by a `Load` every `LOAD_S`."""

    version: int
    stages: tuple[Stage, ...]


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Give the lease back. An engine without other clients ends at once."""


class Transcribe(msgspec.Struct, frozen=True, tag="transcribe"):
    """`audio`: int16 at `STT_RATE_HZ`, 30 s at most. Answered by one `Transcribed`."""

    session: str
    audio: bytes


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """`messages`: (role, text) pairs. Answered by `Reading`, `Delta`, then `Answered`."""

    session: str
    messages: tuple[tuple[str, str], ...]
    max_output_tokens: int
    temperature: float


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Read these messages into the session's cache, or into every free one when `session` is empty. Answered by
    `Reading`, then `Done`."""

    session: str
    messages: tuple[tuple[str, str], ...]


class Score(msgspec.Struct, frozen=True, tag="score"):
    """Compute how likely a user's sentence ends after `text`. Answered by `Scored`."""

    session: str
    text: str


class ScoreAudio(msgspec.Struct, frozen=True, tag="score_audio"):
    """Compute how likely the user has finished after `audio`: int16 at `rate_hz`, of which the last 8 s count. Answered
    by `Scored`."""

    session: str
    audio: bytes
    rate_hz: int


class Speak(msgspec.Struct, frozen=True, tag="speak"):
    """Answered by `Audio`, one for each sentence, then `Done`."""

    session: str
    text: str
    speed: float


Job = Transcribe | Generate | Warm | Score | ScoreAudio | Speak
Request = Attach | Leave | Job


class LoadProgress(msgspec.Struct, frozen=True, tag="progress"):
    """Loading progress of a stage's engine."""

    stage: Stage
    state: Literal["loading", "ready", "failed"]
    took_ms: int = 0
    why: str = ""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Message: the engine has loaded all requested stages."""

    version: int
    pid: int


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The share of the time since the report before in which the threads of each stage's model worked, 0 to 1."""

    shares: dict[Stage, float]


class Transcribed(msgspec.Struct, frozen=True, tag="transcribed"):
    """The text of a `Transcribe`."""

    text: str


class Delta(msgspec.Struct, frozen=True, tag="delta"):
    """A part of a `Generate`'s answer."""

    text: str


class Reading(msgspec.Struct, frozen=True, tag="reading"):
    """A `Generate` or `Warm` is still reading its messages: long ones take longer than the stall timeout."""


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """A `Generate` is complete."""

    reason: Literal["stop", "length"]
    input_tokens: int
    output_tokens: int
    cached_tokens: int


class Scored(msgspec.Struct, frozen=True, tag="scored"):
    """The result of a `Score` or a `ScoreAudio`: 0 to 1."""

    probability: float


class Audio(msgspec.Struct, frozen=True, tag="audio"):
    """Audio of a `Speak`: int16 at `TTS_RATE_HZ`."""

    samples: bytes


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The job is complete."""


class JobRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The engine refuses the job."""

    why: str
    retryable: bool
    retry_after_ms: int | None = None


class JobFailed(msgspec.Struct, frozen=True, tag="broken"):
    """The engine failed at the job."""

    why: str


EngineReply = (
    LoadProgress
    | Ready
    | Load
    | Transcribed
    | Reading
    | Delta
    | Answered
    | Scored
    | Audio
    | Done
    | JobRefused
    | JobFailed
)
FINAL: Final = (Transcribed, Answered, Scored, Done, JobRefused, JobFailed)
"""Replies after which a job's connection carries nothing more."""

REQUESTS: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
REPLIES: Final[msgspec.msgpack.Decoder[EngineReply]] = msgspec.msgpack.Decoder(EngineReply)
_ENCODER: Final = msgspec.msgpack.Encoder()

T = TypeVar("T")


def frame(message: Request | EngineReply) -> bytes:
    """Return the message's frame, including its length."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    """Return the next message, or None when the other side has closed.

    Raises:
        ValueError: the frame is too long, or is none of the decoder's messages.
    """
    try:
        (n_bytes,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if n_bytes > MAX_FRAME_BYTES:
            raise ValueError(f"expected a frame of {MAX_FRAME_BYTES} bytes at most, got {n_bytes}")
        body = await reader.readexactly(n_bytes)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return decoder.decode(body)
