"""What version 2 of the database called its tables, columns and the fields of records."""

from __future__ import annotations

import zlib
from typing import Final

BACK_TO_VERSION_2: Final = """
    DROP TABLE feedback;
    ALTER TABLE sessions DROP COLUMN summary;
    ALTER TABLE buckets RENAME TO spans;
    ALTER TABLE turns RENAME COLUMN user_id TO caller;
    ALTER TABLE sessions RENAME COLUMN user_id TO caller;
    ALTER TABLE figures RENAME COLUMN dimension TO facet;
    DROP INDEX turns_by_user;
    DROP INDEX buckets_due;
    DROP INDEX figures_by_dimension;
    CREATE INDEX turns_by_caller ON turns (project, caller, started_at_ms, id) WHERE caller <> '';
    CREATE INDEX spans_due ON spans (level_ms, from_ms) WHERE stamp IS NOT NULL;
    CREATE UNIQUE INDEX figures_by_facet ON figures (project, level_ms, facet, from_ms, name)
"""
"""Statements that take the tables of version 5 back to version 2."""

_OLD_NAMES: Final = {
    b"latency_source": b"heard_by",
    b"user_text": b"caller_text",
    b"played_text": b"heard_text",
    b"hedge_usd": b"losers_usd",
    b'"tts_usd': b'"speech_usd',
    b'"stt_usd': b'"hearing_usd',
    b"llm_requested": b"asked",
    b"first_audible": b"heard",
    b'"used"': b'"kept"',
    b'"stt_connect': b'"ear_connect',
    b'"tts_connect': b'"connect',
}


def record_of_version_2(data: bytes) -> bytes:
    """Return a stored record with the names that version 2 gave its fields."""
    record = zlib.decompress(data)
    for new, old in _OLD_NAMES.items():
        record = record.replace(new, old)
    return zlib.compress(record)
