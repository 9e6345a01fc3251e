"""The search before a request to the LLM has a limit, and a result that came within it counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from voicepipe.knowledge.index import KnowledgeIndex
from voicepipe.knowledge.passages import Passage
from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.session.knowledge import SEARCH_TIMEOUT_S, Knowledge

PETS = Passage("pets.md", 1, "Pets", "Dogs are welcome.")
REQUEST = ModelRequest(model="m", messages=(Content("user", (Text("can I bring my dog"),)),))


class StalledLoop(KnowledgeIndex):
    """The event loop stands still from the start of a search until its time is over; the search itself is quick."""

    def find(
        self, query: str, nearest: Callable[[], Sequence[int]] | None = None
    ) -> asyncio.Future[tuple[Passage, ...]]:
        """Search, and stall the loop."""
        asyncio.get_running_loop().call_soon(self._stall)
        return super().find(query, nearest)

    def _stall(self) -> None:
        self._thread.submit(int).result()  # the search is over
        time.sleep(2 * SEARCH_TIMEOUT_S)


class Endless(KnowledgeIndex):
    """A search never ends."""

    def find(
        self, query: str, nearest: Callable[[], Sequence[int]] | None = None
    ) -> asyncio.Future[tuple[Passage, ...]]:
        """Return no result."""
        return asyncio.get_running_loop().create_future()


@pytest.fixture
def index(request: pytest.FixtureRequest) -> Iterator[KnowledgeIndex]:
    """An index of one passage."""
    made: KnowledgeIndex = request.param([PETS], max_tokens=100)
    yield made
    made.close()


@pytest.mark.parametrize("index", [StalledLoop], indirect=True)
async def test_a_result_that_came_while_the_loop_was_stalled_counts(index: KnowledgeIndex) -> None:
    """The limit is for the search, not for the loop."""
    _, use = await Knowledge(index).found_for(REQUEST)
    assert [each.document for each in use.passages] == ["pets.md"]


@pytest.mark.parametrize("index", [Endless], indirect=True)
async def test_an_answer_does_not_wait_for_a_search_that_is_late(
    index: KnowledgeIndex, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes without passages, and the log says so."""
    with caplog.at_level(logging.WARNING):
        request, use = await Knowledge(index).found_for(REQUEST)
    assert request == REQUEST
    assert use.passages == ()
    assert [each.message for each in caplog.records] == ["knowledge_late"]
