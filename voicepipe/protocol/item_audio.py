"""Put the audio of an item into its object, as `conversation.item.retrieved` has it.

Source: OpenAI API reference, `conversation.item.retrieve`: the bytes in the session's format of that direction, base64.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

import numpy as np

from voicepipe.audio.g711 import encode_alaw, encode_mulaw
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, to_pcm
from voicepipe.protocol.json_fields import JsonObject
from voicepipe.protocol.session_types import AudioFormat

MAX_BYTES: Final = 720_000
"""Longest audio that an event brings, before base64: 15 s as pcm. Clients' frame limits begin at 1 MiB."""

_PARTS: Final = ("input_audio", "output_audio", "audio")


def with_audio(item: JsonObject, audio: str) -> JsonObject:
    """Return a message's object with the audio in its first part of that kind; as it is if there is no such part."""
    place = next((n for n, part in enumerate(item.get("content", ())) if part["type"] in _PARTS), None)
    if place is None:
        return item
    content = list(item["content"])
    content[place] = content[place] | {"audio": audio}
    return item | {"content": content}


def coded_audio(samples: Samples, rate_hz: int, form: AudioFormat) -> str | None:
    """Return audio in a format, in base64; None: it is too long for an event. To resample a minute and a half takes
    40 ms: call it in a thread."""
    if _coded_bytes(len(samples), rate_hz, form) > MAX_BYTES:
        return None
    return b64encode(_coded(samples, rate_hz, form)).decode()


def _coded_bytes(n_samples: int, rate_hz: int, form: AudioFormat) -> int:
    """Return the length of what `_coded` returns."""
    n_coded = -(-n_samples * form.rate_hz // rate_hz)
    return 2 * n_coded if form.name == "audio/pcm" else n_coded


def _coded(samples: Samples, rate_hz: int, form: AudioFormat) -> bytes:
    if rate_hz != form.rate_hz:
        resampler = Resampler(rate_hz, form.rate_hz)
        samples = np.concatenate([resampler.push(samples), resampler.flush()])
    match form.name:
        case "audio/pcm":
            return to_pcm(samples)
        case "audio/pcmu":
            return encode_mulaw(samples)
        case "audio/pcma":
            return encode_alaw(samples)
