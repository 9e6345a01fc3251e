"""The section on extensions is true: every one of them, every event and field, and the header of a frame."""

from __future__ import annotations

import re

import msgspec

from tests import docs
from voicepipe.protocol import binary, extensions
from voicepipe.session.connection import RESUME_WINDOW_MS, SENT_FRAMES_BYTES, SENT_FRAMES_MS

SECTION = docs.section("Extensions")


def rows() -> list[list[str]]:
    """The cells of all tables' lines."""
    lines = (line.strip("|").split("|") for line in SECTION.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line] for line in lines]


def events() -> dict[str, type[msgspec.Struct]]:
    """Our own events by their names."""
    kinds = (*extensions.ClientExtension.__subclasses__(), *extensions.ServerExtension.__subclasses__())
    return {str(kind.__struct_config__.tag): kind for kind in kinds}


def test_every_extension_is_documented() -> None:
    documented = {row[0].strip("`") for row in rows() if re.fullmatch(r"`[a-z_]+`", row[0])}
    assert documented == set(extensions.Extensions.__struct_fields__)


def test_every_event_and_field_is_documented() -> None:
    documented = {
        row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows() if row[0].startswith("`voicepipe.")
    }
    assert documented == {name: set(kind.__struct_fields__) - {"event_id"} for name, kind in events().items()}


def test_frame_header_is_documented() -> None:
    layout = [(int(row[0]), int(row[1])) for row in rows() if row[0].isdigit()]
    assert layout == [(0, 1), (1, 1), (2, 2), (4, 4)]
    assert binary.HEADER.size == sum(n_bytes for _, n_bytes in layout)


def test_the_limits_are_the_codes() -> None:
    assert (RESUME_WINDOW_MS, SENT_FRAMES_MS, SENT_FRAMES_BYTES) == (15_000, 60_000, 4 << 20)
    assert "for 15 s" in SECTION
    assert "for a minute, at most 4 MiB" in SECTION
