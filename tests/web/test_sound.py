"""The resampler and the loudspeaker, measured in the browser that runs them."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow

LEVEL = """
import("/web/resampler.js").then(({ Resampler }) => {
  const [from, to, tone] = %s;
  const resampler = new Resampler(from, to);
  const output = [];
  for (let block = 0; block < 60; block += 1) {
    const phase = (i) => (2 * Math.PI * tone * (block * 512 + i)) / from;
    output.push(...resampler.push(Float32Array.from({ length: 512 }, (_, i) => Math.sin(phase(i)))));
  }
  const steady = output.slice(1000, -200);
  const level = Math.sqrt(steady.reduce((sum, x) => sum + x * x, 0) / steady.length);
  return [20 * Math.log10(level * Math.SQRT2), output.length, (60 * 512 * to) / from];
})
"""

RATES = [(48_000, 24_000), (44_100, 24_000), (16_000, 24_000), (8_000, 24_000), (96_000, 24_000)]


async def test_the_resampler_keeps_speech_and_drops_what_would_fold_back(talking: Any) -> None:
    """From every rate that microphones have: within 0.1 dB up to 4/5 of the band, 60 dB down beyond it, none lost."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        for from_hz, to_hz in RATES:
            edge_hz = min(from_hz, to_hz) / 2
            for tone_hz in (100.0, 1_000.0, 0.8 * edge_hz):
                level_db, n_samples, n_expected = await page.evaluate(LEVEL % [from_hz, to_hz, tone_hz])
                assert abs(level_db) < 0.1, (from_hz, tone_hz)
                assert n_expected - 128 < n_samples <= n_expected
            for tone_hz in (1.05 * edge_hz, 1.5 * edge_hz) if from_hz > to_hz else ():
                level_db, _, _ = await page.evaluate(LEVEL % [from_hz, to_hz, tone_hz])
                assert level_db < -60, (from_hz, tone_hz)


QUEUE = """
(async () => {
  const { Speaker } = await import("/web/speaker.js");
  const ended = [];
  let over;
  const all = new Promise((resolve) => (over = resolve));
  const speaker = await Speaker.open();
  speaker.onEnded = (item) => ended.push(item) === 2 && over();
  speaker.play("a", new Int16Array(2400).fill(1000));
  speaker.play("a", new Int16Array(2400).fill(1000));
  speaker.finish("a");
  speaker.play("b", new Int16Array(1200).fill(2000));
  speaker.finish("b");
  const busy = speaker.busy;
  await all;
  const after = [speaker.busy, await speaker.flush()];
  await speaker.close();
  return { ended, busy, after };
})()
"""

CUT = """
(async () => {
  const { Speaker } = await import("/web/speaker.js");
  let began;
  const playing = new Promise((resolve) => (began = resolve));
  const speaker = await Speaker.open();
  speaker.onPosition = began;
  speaker.play("a", new Int16Array(240000).fill(1000));
  speaker.play("b", new Int16Array(2400).fill(1000));
  const at = await playing;
  const cut = await speaker.flush();
  speaker.finish("a");
  const busy = speaker.busy;
  await speaker.close();
  return { at, cut, busy };
})()
"""


async def test_items_are_played_in_order_to_the_last_sample(talking: Any) -> None:
    """The end of each item is reported, with its whole length."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        result = await page.evaluate(QUEUE)
    assert result["busy"] is True
    assert result["ended"] == [{"item": "a", "played_ms": 200}, {"item": "b", "played_ms": 50}]
    assert result["after"] == [False, []]


async def test_flush_reports_played_ms_of_each_item(talking: Any) -> None:
    """What has begun at its sample, what has not at 0; nothing is left."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        result = await page.evaluate(CUT)
    a, b = result["cut"]
    assert (a["item"], b) == ("a", {"item": "b", "played_ms": 0})
    assert result["at"]["played_ms"] <= a["played_ms"] < 10_000
    assert result["busy"] is False


LATE = """
(async () => {
  Object.defineProperty(AudioContext.prototype, "outputLatency", { get: () => 0.2 });
  const { Speaker } = await import("/web/speaker.js");
  const positions = [];
  let over;
  const ended = new Promise((resolve) => (over = resolve));
  const speaker = await Speaker.open();
  speaker.onPosition = (at) => positions.push(at);
  speaker.onEnded = over;
  speaker.play("a", new Int16Array(24000).fill(1000));
  speaker.finish("a");
  const item = await ended;
  await speaker.close();
  return { positions, item };
})()
"""


async def test_what_the_device_still_holds_is_not_played_yet(talking: Any) -> None:
    """A loudspeaker that is 200 ms late is said to be: nothing is played in that time, and the end is the real one."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        result = await page.evaluate(LATE)
    assert result["item"] == {"item": "a", "played_ms": 1_000}
    assert result["positions"]
    for at in result["positions"]:
        assert 0 < at["played_ms"] <= 800
        assert at["played_ms"] + at["waiting_ms"] == pytest.approx(1_000, abs=1)


DUCKED = """
(async () => {
  const { Speaker } = await import("/web/speaker.js");
  const loud = (level) => new Promise((resolve) => {
    const look = () => {
      const block = window.played.at(-1);
      if (block && Math.abs(block.at(-1) - level) < 0.001 && Math.abs(block[0] - level) < 0.001) resolve(block.at(-1));
      else setTimeout(look, 20);
    };
    look();
  });
  const speaker = await Speaker.open();
  speaker.play("a", new Int16Array(24000 * 10).fill(16384));
  const levels = [await loud(0.5)];
  speaker.duck();
  levels.push(await loud(0.125));
  speaker.restore();
  levels.push(await loud(0.5));
  const busy = speaker.busy;
  await speaker.close();
  return { levels, busy };
})()
"""


async def test_a_ducked_voice_plays_on_at_a_quarter(talking: Any) -> None:
    """And at full volume again afterwards."""
    async with talking(has_microphone=False) as talk, talk.page() as page:
        result = await page.evaluate(DUCKED)
    assert result["levels"] == pytest.approx([0.5, 0.125, 0.5], abs=0.001)
    assert result["busy"] is True
