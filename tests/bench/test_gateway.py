"""The bench of the gateway: it measures real processes, and says what it could not compare."""

from __future__ import annotations

import sys
from pathlib import Path

import aiohttp
import pytest

from tests.measure import gateway
from tests.measure.gateway import Measured, measure, measure_request, peers, table
from tests.measure.gateway_peers import Peer, vendor
from voicepipe.errors import VoicepipeError
from voicepipe.testing.fakes.cues import LlmCue, NoEnd
from voicepipe.testing.fakes.vendor import FakeVendor


@pytest.mark.slow
async def test_the_same_questions_go_directly_and_through_us() -> None:
    async with peers(None, 3) as found:
        ways = await measure(found, 4, 2)
    assert [way.peer.name for way in ways] == ["vendor, directly", "voicepipe"]
    for way in ways:
        assert len(way.first_ms) == len(way.whole_ms) == 4
        assert all(0 < first <= whole for first, whole in zip(way.first_ms, way.whole_ms, strict=True))


@pytest.mark.slow
async def test_an_answer_that_is_not_whole_is_no_figure() -> None:
    async with vendor(2) as behind, aiohttp.ClientSession() as http, FakeVendor() as cut:
        await measure_request(http, behind)
        cut.llm.usual = LlmCue(tokens=("word0", "word1"), fault=NoEnd(after=2))
        with pytest.raises(VoicepipeError, match="expected a whole answer"):
            await measure_request(http, Peer("cut", cut.base_url, {}, "m", behind.pid))


def test_table_shows_added_latency() -> None:
    direct = Measured(Peer("vendor, directly", "", {}, "", 0), [1.0], [2.0], 9.0)
    ours = Measured(Peer("voicepipe", "", {}, "", 0), [3.5], [5.0], 1.5)
    _, _, first, second = table([direct, ours])
    assert first == "| vendor, directly | 1.00 ms | 1.00 ms | - | 2.00 ms | - | - |"
    assert second == "| voicepipe | 3.50 ms | 3.50 ms | 2.50 ms | 5.00 ms | 3.00 ms | 1.50 ms |"


def test_what_is_not_compared_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def nothing(options: object) -> None:
        """Not measured here."""

    monkeypatch.setattr(gateway, "compare", nothing)
    monkeypatch.setattr(sys, "argv", ["gateway"])
    assert gateway.main() == 0
    assert "NOT COMPARED WITH LITELLM" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["gateway", "--litellm", str(tmp_path)])
    assert gateway.main() == 2
    assert "bin/litellm" in capsys.readouterr().err
