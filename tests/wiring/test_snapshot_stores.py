"""A session whose node dies goes on at another one though the store hangs: two other servers have its snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wiring.test_takeover import nodes, read_by_llm, talking
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.redis import redis_server

pytestmark = pytest.mark.slow


async def test_a_session_moves_while_one_of_three_servers_hangs(tmp_path: Path) -> None:
    """The one that hangs has all else that the nodes share. Its session is resumed before it is back."""
    with redis_server() as store, redis_server() as second, redis_server() as third:
        async with (
            nodes(tmp_path, store, snapshot_stores=[store, second, third]) as cluster,
            talking(cluster.one) as user,
        ):
            cluster.vendor.llm.cue(LlmCue(tokens=("Answer 1.",)))
            assert await user.prompt("Question 1?") == "Answer 1."
            await cluster.until_answered(user.session_id, 1)
            store.freeze()
            try:
                await cluster.one.kill()
                resumed = await user.resume_at(cluster.other.url)
                cluster.vendor.llm.cue(LlmCue(tokens=("Answer 2.",)))
                answer = await user.prompt("Question 2?")
            finally:
                store.thaw()
    assert (resumed["type"], resumed["moved"], answer) == ("voicepipe.resumed", True, "Answer 2.")
    assert [words for role, words in read_by_llm(cluster.vendor) if role == "user"] == ["Question 1?", "Question 2?"]
