"""Take the README's pictures of the dashboard: a quarter of an hour of made-up turns, the same in every run.

    python tests/web/screenshots_dashboard.py

Writes web/screenshots/dashboard-*.png. Needs Chromium. The turns are written into the store before the server starts;
everything that is seen is then counted and drawn as it always is.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, Literal

from voicepipe.clock import unix_ms
from voicepipe.config import Settings, load
from voicepipe.telemetry.store.port import StoredTurn
from voicepipe.telemetry.store.sqlite import SqliteTurnStore
from voicepipe.testing.chromium import Browser, chromium
from voicepipe.testing.records import turn_record
from voicepipe.turn.record.values import ModelAttempt, Speculation, TurnCost, TurnRecord
from voicepipe.wiring import running

FOLDER: Final = Path(__file__).parents[2] / "web" / "screenshots"

N_TURNS: Final = 240
SPAN_MS: Final = 15 * 60_000
SLOW_SHARE: Final = 0.09

SAID: Final = "Half past eight. Is there a garden?"
ANSWERED: Final = "There is, behind the house, under two old chestnut trees. If it rains we keep one inside."
PLAYED: Final = "There is, behind the house, under two old"

SHOTS: Final[tuple[tuple[str, int, int, Literal["light", "dark"]], ...]] = (
    ("overview", 1_280, 960, "light"),
    ("turn", 1_280, 720, "light"),
    ("turn", 360, 780, "dark"),
)

CALM: Final = r"/Loop lag\d ms/.test(document.querySelector('#server-status').textContent)"
"""The starts of the server and of the browser are over."""

DRAWN: Final = "document.querySelector('#slowest .turn') !== null && document.querySelector('.chart canvas') !== null"


async def main() -> None:
    """Take them all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = settings(folder)
        await fill(chosen.data_path)
        async with chromium(folder, has_microphone=False) as browser, running(chosen) as server:
            for view, width, height, scheme in SHOTS:
                await picture(browser, f"{server.base_url}/dashboard", view, width, height, scheme)


async def picture(
    browser: Browser, url: str, view: str, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    """The first view, or the page of the slowest turn."""
    async with browser.page(url, width=width, height=height, scheme=scheme) as page:
        await page.send_command("Emulation.setScrollbarsHidden", hidden=True)
        await page.until(DRAWN)
        with suppress(TimeoutError):  # on a machine that is never calm
            await page.until(CALM)
        if view == "turn":
            await page.evaluate("document.querySelector('#slowest .turn').click()")
            await page.until("document.querySelector('#waterfall') !== null")
        (FOLDER / f"dashboard-{view}-{width}-{scheme}.png").write_bytes(await page.screenshot())
    sys.stderr.write(f"dashboard-{view}-{width}-{scheme}.png\n")


async def fill(data_path: Path) -> None:
    """Write the turns as a server would have that was up for a quarter of an hour."""
    await asyncio.to_thread(data_path.mkdir, mode=0o700, parents=True)
    store = await SqliteTurnStore.open(data_path / "turns.sqlite3")
    await store.store(tuple(turns(unix_ms() - SPAN_MS)))
    await store.close()


def turns(since_ms: int) -> Iterator[StoredTurn]:
    """Turns of two agents, whose models are near and far."""
    chance = Random(7)  # the same in every run
    for n in range(N_TURNS):
        agent = chance.choice(("reception", "reception", "support"))
        record = turn(n, agent, chance)
        yield StoredTurn(record, "default", agent, since_ms + n * SPAN_MS // N_TURNS, language="en")


def turn(n: int, agent: str, chance: Random) -> TurnRecord:
    """One turn; of every eleven, one waits for its model."""
    slow = chance.random() < SLOW_SHARE
    model = "far/large" if agent == "support" or slow else "near/small"
    marks = timed(chance, slow)
    outcome = "interrupted" if slow or chance.random() < 0.08 else "completed"
    return turn_record(
        marks,
        owners={"silence": "settings", "llm_ttft": model, "first_clause": model, "tts_ttfb": "near/voice"},
        id=f"turn_{chance.getrandbits(64):016x}_{n:04d}",
        session=f"sess_{n // 6 * 0x9E3779B97F4A7C15 % 2**64:016x}",
        turn=n % 6 + 1,
        outcome=outcome,
        providers=(("stt", "near/ear"), ("llm", model), ("tts", "near/voice")),
        user_text=SAID,
        agent_text=ANSWERED,
        played_text=PLAYED if outcome == "interrupted" else ANSWERED,
        actions=("hedge",) if slow else (),
        attempts=attempts(model) if slow else (),
        speculation=Speculation(starts=1, used=1, saved_ms=chance.randint(90, 240)),
        cost=TurnCost(usd=0.0012, answer_usd=0.0004, hedge_usd=0.0001 if slow else 0.0, tts_usd=0.0007),
    )


def timed(chance: Random, slow: bool) -> tuple[tuple[str, int], ...]:
    """The marks of a spoken turn that was answered while its silence lasted."""

    def about(ms: int) -> int:
        return max(1, round(chance.gauss(ms, ms / 6)))

    voiced = 5_000
    requested = voiced + about(105)
    first_delta = requested + about(1_050 if slow else 250)
    first_clause = first_delta + about(55)
    first_sound = first_clause + about(110)
    ended = voiced + about(390)
    gate_opened = max(ended, first_sound)
    first_sent = gate_opened + about(3)
    marks = {
        "voiced_last": voiced,
        "flushed": voiced + 80,
        "transcribed": requested - 4,
        "llm_requested": requested,
        "connected": requested + 2,
        "first_delta": first_delta,
        "first_clause": first_clause,
        "first_sound": first_sound,
        "ended": ended,
        "gate_opened": gate_opened,
        "first_sent": first_sent,
        "first_audible": first_sent + about(42),
    }
    return tuple(sorted(marks.items(), key=lambda mark: mark[1]))


def attempts(model: str) -> tuple[ModelAttempt, ...]:
    """A second model got a request too, and was no sooner."""
    return (
        ModelAttempt(provider=model, role="primary", outcome="spoke", began_ms=0, first_ms=1_040, cost_usd=0.0004),
        ModelAttempt(provider="near/small", role="hedge", outcome="lost", began_ms=420, first_ms=None, cost_usd=0.0001),
    )


def settings(folder: Path) -> Settings:
    """A server without calls."""
    overrides = {
        "server.port": 0,
        "server.drain_ms": 0,
        "server.data_dir": str(folder / "data"),
        "providers.near.base_url": "http://127.0.0.1:9/v1",
        "agents.default.stt": "near/ear",
        "agents.default.llm": "near/small",
        "agents.default.tts": "near/voice",
    }
    return load(overrides=overrides, environ={"HOME": str(folder)}, folder=folder)


if __name__ == "__main__":
    asyncio.run(main())
