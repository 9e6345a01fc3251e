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
