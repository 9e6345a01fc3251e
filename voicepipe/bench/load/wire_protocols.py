"""The protocols of the servers that the load bench measures: Realtime events, and those of other servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pybase64

from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, to_pcm

RATE_HZ: Final = 24_000
"""The rate of the users' audio, and of the answers."""

PIPECAT_HZ: Final = 16_000

_AUDIO_FRAME: Final = b"\x12"
_AUDIO, _RATE, _CHANNELS = 0x1A, 0x20, 0x28
_BYTES_FIELD: Final = 2
"""The keys of Pipecat's `Frame.audio`, and of its `audio`, `sample_rate` and `num_channels`: protobuf's field number
times 8, and its type. Source: pipecat-ai 1.14.0, `frames/frames.proto`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireProtocol:
    """A server's protocol."""

    messages: Callable[[Sequence[Samples]], list[str | bytes]]
    """Makes the messages of consecutive frames of the user's audio."""

    sound: Callable[[bytes], bytes | None] = lambda data: data
    """Returns the audio of a binary message, pcm16 at `RATE_HZ`; None: it has none."""

    has_events: bool = False
    """Whether it has Realtime's events: settings, errors, and the end of an answer."""


def append_event(samples: Samples) -> str:
    """Return the user's audio as a Realtime event."""
    return f'{{"type":"input_audio_buffer.append","audio":"{pybase64.b64encode_as_string(to_pcm(samples))}"}}'


def _pipecat_messages(frames: Sequence[Samples]) -> list[str | bytes]:
    resampler = Resampler(RATE_HZ, PIPECAT_HZ)
    return [_pipecat_frame(to_pcm(resampler.push(frame))) for frame in frames]


def _pipecat_frame(pcm: bytes) -> bytes:
    rate = bytes([_RATE]) + _varint(PIPECAT_HZ)
    body = bytes([_AUDIO]) + _varint(len(pcm)) + pcm + rate + bytes([_CHANNELS]) + _varint(1)
    return _AUDIO_FRAME + _varint(len(body)) + body


def _pipecat_sound(data: bytes) -> bytes | None:
    if data[:1] != _AUDIO_FRAME:
        return None
    at, _ = _read_varint(data, 1)
    while at < len(data):
        key = data[at]
        at, number = _read_varint(data, at + 1)
        if key == _AUDIO:
            return data[at : at + number]
        at += number if key & 7 == _BYTES_FIELD else 0
    return None


def _varint(number: int) -> bytes:
    """Return protobuf's form: 7 bits in each byte, the lowest first."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return where the number ends, and the number."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return at, number


REALTIME: Final = WireProtocol(messages=lambda frames: [append_event(frame) for frame in frames], has_events=True)
RAW: Final = WireProtocol(messages=lambda frames: [to_pcm(frame) for frame in frames])
"""PCM in binary messages, both ways."""

PIPECAT: Final = WireProtocol(messages=_pipecat_messages, sound=_pipecat_sound)
