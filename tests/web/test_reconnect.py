"""The pauses of the JavaScript module between its tries to resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.node import json_from_node

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
WEB = HERE.parents[1] / "web"


async def test_pauses_grow_and_begin_again_where_a_node_waited_for_the_store() -> None:
    """A store that is back is found soon, however long it was away."""
    lasted_ms = (10, 10, 1_500, 1_500, 10, 10, 10, 10, 10)
    pauses = await json_from_node(str(HERE / "reconnect.mjs"), str(WEB), *map(str, lasted_ms))
    assert pauses == [100, 200, 400, 100, 100, 200, 400, 800, 1_600, 2_000]


async def test_nothing_is_given_to_a_closing_socket() -> None:
    """The browser drops it and complains. It counts as sent, so that a resumed session gets it again."""
    sent = await json_from_node(str(HERE / "closing.mjs"), str(WEB))
    assert sent == {"returned": [True, True], "got": [[1, "response.cancel"]]}
