"""The encodings in which a vendor's STT takes audio."""

from __future__ import annotations

from collections.abc import Mapping

from voicepipe.audio.encoding import AudioEncoding, TelephoneFormat

Encodings = Mapping[TelephoneFormat | None, AudioEncoding]
"""The encoding by that of the user's telephone; None: of any other audio. A vendor that lacks A-law may take it as PCM
at 8 kHz."""


def telephone_of(encodings: Encodings) -> frozenset[TelephoneFormat]:
    """Return the capability `telephone`."""
    return frozenset(name for name in encodings if name is not None)
