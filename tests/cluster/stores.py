"""The stores for tests that are not about how long an answer takes: a busy machine may stand still for seconds."""

from __future__ import annotations

from functools import partial
from typing import Final

from voicepipe.cluster import redis, sqlite
from voicepipe.testing.waiting import WAIT_S

ANSWER_MS: Final = int(WAIT_S * 1_000)

open_redis = partial(redis.open_redis, answer_ms=ANSWER_MS)
open_sqlite = partial(sqlite.open_sqlite, answer_ms=ANSWER_MS)
