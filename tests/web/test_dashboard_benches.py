"""The dashboard shows the scheduled benches: in a real browser, over stored runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.browsers import Browsers
from voicepipe.bench.scheduled.run_log import BenchRun, Result, open_log
from voicepipe.clock import unix_ms
from voicepipe.config import load
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.wiring import running

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


def store(data: Path) -> None:
    """Ten runs of a model, then one that is slower; and a model whose run was left out."""
    data.mkdir(mode=0o700)
    with open_log(data) as log:

        def keep(model: str, ago_h: int, result: Result, ms: float, why: str = "") -> None:
            values = tuple(ms + n for n in range(20)) if result == "measured" else ()
            log.write(
                BenchRun(
                    id=f"{model} {ago_h}",
                    at_ms=unix_ms() - ago_h * HOUR_MS,
                    bench="daily",
                    stage="llm",
                    model=model,
                    result=result,
                    usd=0.01,
                    latencies_ms=values,
                    why=why,
                )
            )

        for ago_h in range(60, 50, -1):
            keep("quick/slow", ago_h, "measured", 200.0)
        keep("quick/slow", 40, "measured", 400.0)
        keep("quick/dear", 40, "over_cap", 0.0, "it may cost 2 USD")


async def test_a_row_has_the_latest_run_and_what_has_changed(tmp_path: Path, browsers: Browsers) -> None:
    data = tmp_path / "data"
    store(data)
    async with FakeVendor() as vendor:
        overrides = {
            "server.port": 0,
            "server.drain_ms": 0,
            "server.data_dir": str(data),
            "providers.quick.base_url": vendor.base_url,
            "providers.quick.input_usd_per_million": 1.0,
            "providers.quick.output_usd_per_million": 1.0,
            "agents.default.stt": "quick/ear",
            "agents.default.llm": "quick/mind",
            "agents.default.tts": "quick/mouth",
            "benches.daily.models": ["quick/slow", "quick/dear"],
            "benches.daily.every_minutes": 525_600,
        }
        settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
        async with (
            running(settings) as server,
            browsers.browser(has_microphone=False) as browser,
            browser.page(f"{server.base_url}/dashboard?view=providers") as page,
        ):
            await page.until("document.querySelectorAll('#bench-table tbody tr').length === 2")
            words = await page.text("#benches")
            assert page.complaints == []
    assert "daily: LLM quick/slow" in words
    assert "p50 +200 ms" in words
    assert "p95 +200 ms" in words
    assert "left out: cost" in words
    assert "it may cost 2 USD" in words
    assert "of $0.500, this month" in words
