"""The users of the load bench over `voicepipe.client`: the comparison of their cost."""

from __future__ import annotations

import pytest

from tests.measure.client_cost import measure
from voicepipe.audio.files import read_sound
from voicepipe.bench.load.user import sentence
from voicepipe.bench.load.wire_protocols import RATE_HZ
from voicepipe.cli.bench_load import SOUND


@pytest.mark.long
@pytest.mark.slow
async def test_the_users_have_the_same_answers_by_either_connection() -> None:
    """Each turn is answered, with audio, and ends without an error."""
    own, by_client = await measure(2, 2, 1, sentence(read_sound(SOUND, RATE_HZ)))
    for each in (own, by_client):
        assert [turn.error for turn in each.load.turns] == [""] * 4
        assert all(turn.latency_ms and turn.sound_ms > 0 for turn in each.load.turns)
        assert "4 of 4" in each.line()
    lengths_ms = [turn.sound_ms for each in (own, by_client) for turn in each.load.turns]
    assert max(lengths_ms) - min(lengths_ms) < 200, "a busy machine joins the clauses with other pauses"
