"""The page's reports of playback, in Node: what the microphone has captured, however late its frames leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.node import json_from_node

pytestmark = pytest.mark.slow

WEB = Path(__file__).parents[2] / "web"

SCRIPT = """
const { Playback } = await import(process.argv[1]);
let now_ms = 10_000;
performance.now = () => now_ms;
const playback = new Playback({ has: () => true, send: () => {} });
const seen = [playback.input_ms];
for (let n = 0; n < 50; n++) { now_ms += 20; playback.sent(); }
seen.push(playback.input_ms);
now_ms += 300;
for (let n = 0; n < 15; n++) { playback.sent(); seen.push(playback.input_ms); }
now_ms += 5_000;
seen.push(playback.input_ms);
playback.sent();
seen.push(playback.input_ms);
console.log(JSON.stringify(seen));
"""


async def test_late_frames_do_not_move_the_captured_position() -> None:
    """50 frames in time, 15 after a pause of the page, and one after the microphone was muted."""
    seen = await json_from_node("--input-type=module", "-e", SCRIPT, (WEB / "playback.js").as_uri())
    before, in_time, *late, muted, after = seen
    assert (before, in_time) == (0, 1_000)
    assert len(late) == 15
    assert all(abs(each - 1_300) <= 1 for each in late)
    assert muted == 6_300
    assert after == 1_320
