"""The tables of turns, for both databases."""

from __future__ import annotations

from typing import Final

from voicepipe.errors import ConfigError

VERSION: Final = 5
"""Version of these tables. Version 1 was SQLite's alone, one table with the records in it."""

_FEEDBACK: Final = """
    CREATE TABLE feedback (
        number BIGINT NOT NULL,
        source TEXT NOT NULL,
        score DOUBLE PRECISION NOT NULL,
        at_ms BIGINT NOT NULL,
        PRIMARY KEY (number, source)
    )
    """
"""The scores of turns' answers, by the number of the turn."""

_TABLES: Final = (
    _FEEDBACK,
    """
    CREATE TABLE projects (
        project TEXT PRIMARY KEY,
        trimmed_ms BIGINT NOT NULL,
        pruned_ms BIGINT NOT NULL
    )
    """,
    """
    CREATE TABLE turns (
        number {number},
        project TEXT NOT NULL,
        id TEXT NOT NULL,
        started_at_ms BIGINT NOT NULL,
        session TEXT NOT NULL,
        agent TEXT NOT NULL,
        user_id TEXT NOT NULL,
        language TEXT NOT NULL,
        route TEXT NOT NULL,
        arm TEXT NOT NULL,
        cause TEXT NOT NULL,
        outcome TEXT,
        total_ms BIGINT,
        late INTEGER NOT NULL,
        stt TEXT NOT NULL,
        llm TEXT NOT NULL,
        tts TEXT NOT NULL,
        usd DOUBLE PRECISION NOT NULL,
        UNIQUE (project, id)
    )
    """,
    "CREATE INDEX turns_by_time ON turns (project, started_at_ms, id)",
    "CREATE INDEX turns_by_session ON turns (project, session, started_at_ms, id)",
    "CREATE INDEX turns_by_user ON turns (project, user_id, started_at_ms, id) WHERE user_id <> ''",
    "CREATE INDEX turns_by_agent ON turns (project, agent, started_at_ms, id)",
    "CREATE INDEX turns_by_outcome ON turns (project, outcome, started_at_ms, id)",
    "CREATE INDEX turns_by_late ON turns (project, late, started_at_ms, id)",
    "CREATE INDEX turns_by_llm ON turns (project, llm, started_at_ms, id)",
    "CREATE INDEX turns_by_arm ON turns (project, arm, started_at_ms, id) WHERE arm <> ''",
    "CREATE INDEX turns_by_total ON turns (project, total_ms, id)",
    """
    CREATE TABLE records (
        number BIGINT PRIMARY KEY,
        record {bytes} NOT NULL
    )
    """,
    """
    CREATE TABLE sessions (
        project TEXT NOT NULL,
        session TEXT NOT NULL,
        agent TEXT NOT NULL,
        user_id TEXT NOT NULL,
        started_at_ms BIGINT NOT NULL,
        last_at_ms BIGINT NOT NULL,
        summary TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (project, session)
    )
    """,
    "CREATE INDEX sessions_by_time ON sessions (project, started_at_ms, session)",
    """
    CREATE TABLE buckets (
        project TEXT NOT NULL,
        level_ms INTEGER NOT NULL,
        from_ms BIGINT NOT NULL,
        stamp BIGINT,
        PRIMARY KEY (project, level_ms, from_ms)
    )
    """,
    "CREATE INDEX buckets_due ON buckets (level_ms, from_ms) WHERE stamp IS NOT NULL",
    """
    CREATE TABLE figures (
        project TEXT NOT NULL,
        level_ms INTEGER NOT NULL,
        from_ms BIGINT NOT NULL,
        dimension TEXT NOT NULL,
        name TEXT NOT NULL,
        figures {bytes} NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX figures_by_dimension ON figures (project, level_ms, dimension, from_ms, name)",
)


FROM_VERSION_4: Final = (_FEEDBACK,)
"""Statements that bring the tables of version 4 to version 5."""

FROM_VERSION_3: Final = ("ALTER TABLE sessions ADD COLUMN summary TEXT NOT NULL DEFAULT ''", *FROM_VERSION_4)
"""Statements that bring the tables of version 3 to version 5."""

BACK: Final[dict[int, tuple[str, ...]]] = {
    5: ("DROP TABLE feedback",),
    4: ("ALTER TABLE sessions DROP COLUMN summary",),
}
"""Version -> the statements that bring its tables back to the version before. Data that the older version
lacks is lost: before version 5 the feedback, before version 4 the summaries."""

OLDEST: Final = 3
"""The oldest version to which tables can be brought back. From it on each version only adds to the one before, so that
servers of both run with the newer tables: see `test_each_version_only_adds`."""

FROM_VERSION_2: Final = (
    "ALTER TABLE turns RENAME COLUMN caller TO user_id",
    "ALTER TABLE sessions RENAME COLUMN caller TO user_id",
    "ALTER TABLE figures RENAME COLUMN facet TO dimension",
    "ALTER TABLE spans RENAME TO buckets",
    "DROP INDEX turns_by_caller",
    "DROP INDEX spans_due",
    "DROP INDEX figures_by_facet",
    *(s for s in _TABLES if any(name in s for name in ("turns_by_user", "buckets_due", "figures_by_dimension"))),
    *FROM_VERSION_3,
)
"""Statements that bring the tables of version 2 to version 5. The records' fields are renamed by `renamed`."""


def statements_back(present: int, target: int) -> tuple[str, ...]:
    """Return the statements that bring tables of version `present` back to version `target`.

    Raises:
        ConfigError: there is no way from the one to the other.
    """
    if present > VERSION:
        raise ConfigError(
            f"the tables have version {present}, made by a newer voicepipe; this one reads versions up to {VERSION}"
        )
    if not OLDEST <= target <= present:
        raise ConfigError(f"expected a version from {OLDEST} to {present}, which the tables have, got {target}")
    return tuple(statement for version in range(present, target, -1) for statement in BACK[version])


def tables(*, number: str, bytes: str) -> tuple[str, ...]:
    """Return the statements that make all tables, empty.

    Args:
        number: the type of a key that the database itself counts up.
        bytes: the type of bytes.
    """
    return tuple(statement.replace("{number}", number).replace("{bytes}", bytes) for statement in _TABLES)
