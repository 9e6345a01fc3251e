"""The names of audio formats on the wire. Importing them loads no numpy: the settings need them."""

from __future__ import annotations

from typing import Final, Literal

TelephoneFormat = Literal["audio/pcmu", "audio/pcma"]
"""G.711: mu-law and A-law."""

FormatName = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]

G711_HZ: Final = 8_000
"""The rate of a telephone's audio."""
