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

BUSY = """
const { Playback } = await import(process.argv[1]);
const { Speaker } = await import(process.argv[2]);
let now_ms = 10_000;
performance.now = () => now_ms;
const sent = [];
const playback = new Playback({ has: () => true, send: (event) => sent.push(event) });
const context = { currentTime: 3, outputLatency: 0.01 };
const speaker = new Speaker(context, { port: {} }, { gain: {} });
speaker.onPosition = (at) => playback.position(at);
for (let n = 0; n < 50; n++) { now_ms += 20; playback.sent(); }
const count = { kind: "position", played: 2400, waiting: 240 };
const position = (item, at_s) => speaker.port.onmessage({ data: { ...count, item, at_s } });
position("in time", 3);
now_ms += 26;
context.currentTime += 0.026;
position("behind a busy page", 3);
console.log(JSON.stringify(sent));
"""


async def test_a_position_that_waited_for_the_page_is_reported_as_of_its_instant() -> None:
    """Else the answer would count as heard later, by as long as the page was busy."""
    scripts = ((WEB / name).as_uri() for name in ("playback.js", "speaker.js"))
    in_time, late = await json_from_node("--input-type=module", "-e", BUSY, *scripts)
    assert in_time == {
        "type": "voicepipe.playback",
        "item_id": "in time",
        "played_ms": 90,
        "buffered_ms": 20,
        "input_ms": 1_000,
    }
    assert late == {**in_time, "item_id": "behind a busy page"}


async def test_late_frames_do_not_move_the_captured_position() -> None:
    """50 frames in time, 15 after a pause of the page, and one after the microphone was muted."""
    seen = await json_from_node("--input-type=module", "-e", SCRIPT, (WEB / "playback.js").as_uri())
    before, in_time, *late, muted, after = seen
    assert (before, in_time) == (0, 1_000)
    assert len(late) == 15
    assert all(abs(each - 1_300) <= 1 for each in late)
    assert muted == 6_300
    assert after == 1_320
