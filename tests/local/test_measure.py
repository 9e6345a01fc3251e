"""The measuring command runs, and reports on each engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.providers.local.measure import measure

pytestmark = pytest.mark.slow

CLIP = Path(__file__).parent.parent / "data" / "clean" / "vctk_p287_001.flac"


async def test_it_measures_every_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once each, on the real models; the figures themselves belong to the machine."""
    await measure(CLIP, tmp_path, times=1)
    lines = capsys.readouterr().out.splitlines()
    for beginning in ("all ready", "stt: flush", "llm: first", "tts: clause", "cancel stt", "cancel llm", "cancel tts"):
        assert any(line.startswith(beginning) for line in lines)
