"""Parse the query parameters of requests for turns, sessions or statistics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, get_args

from voicepipe.errors import AuthError, ProtocolError
from voicepipe.telemetry.store.port import GROUPS, MINUTE_MS, NEWEST, Cursor, SessionQuery, StatsQuery, TurnQuery
from voicepipe.turn.record.arm import Arm
from voicepipe.turn.record.values import Cause, Outcome

ALWAYS: Final = ("token", "project")
"""Accepted everywhere: `token` carries a credential (`auth.credentials`), `project` selects the project."""

TEXTS: Final = ("session", "text", "agent", "route", "provider", "model", "language", "arm", "user")

FILTERS: Final = (*TEXTS, "outcome", "cause", "over", "since", "until")
"""Maximum number of turns on one page."""

MAX_CHARS: Final = 200
"""Maximum length of a search text."""

MINUTES: Final = {"1m": 1, "15m": 15, "1h": 60, "24h": 24 * 60, "7d": 7 * 24 * 60, "30d": 30 * 24 * 60}

_CHOICES: Final = {"outcome": get_args(Outcome), "cause": get_args(Cause), "over": ("true", "false")}

Query = Mapping[str, str]


def turn_query(query: Query) -> TurnQuery:
    """Return which turns to list.

    Raises:
        ProtocolError: a parameter is unknown or has a wrong value; `field` names it.
    """
    _refuse_unknown(query, (*FILTERS, "words", "limit", "before", "order"))
    order = _one_of(query, "order", ("newest", "slowest"))
    return TurnQuery(**_filters(query), **_words(query), **_page(query), **order)


def export_query(query: Query) -> TurnQuery:
    """Return which turns to export, newest first.

    Raises:
        ProtocolError: as in `turn_query`.
    """
    _refuse_unknown(query, (*FILTERS, "words", "format"))
    return TurnQuery(**_filters(query), **_words(query), limit=100)


def session_query(query: Query) -> SessionQuery:
    """Return which sessions to list.

    Raises:
        ProtocolError: as in `turn_query`.
    """
    _refuse_unknown(query, ("text", "agent", "user", "since", "until", "limit", "before", "live", "node"))
    return SessionQuery(**_filters(query), **_page(query))


def stats_query(query: Query, *, now_ms: int) -> StatsQuery:
    """Return which turns to aggregate: those of a window that ends now, or between `since` and `until`.

    Raises:
        ProtocolError: as in `turn_query`.
    """
    _refuse_unknown(query, (*FILTERS, "window", "step", "by"))
    filters = _filters(query)
    if "window" in query:
        filters |= _window(query, now_ms)
    if "step" in query:
        filters["step_ms"] = whole(query["step"], "step")
        filters.setdefault("until_ms", now_ms)
    return StatsQuery(**filters, **_one_of(query, "by", GROUPS))


def wants_live(query: Query) -> bool:
    """Return whether the request is only for sessions that are open now.

    Raises:
        ProtocolError: `live` is neither `true` nor `false`.
    """
    return _one_of(query, "live", ("true", "false")).get("live") == "true"


def live_node(query: Query) -> str | None:
    """Return the node whose open sessions are requested; None: all.

    Raises:
        ProtocolError: `node` without `live=true`: stored sessions have no node.
    """
    if "node" in query and not wants_live(query):
        raise ProtocolError("Expected live=true with node: only open sessions have one.", field="node")
    return query.get("node")


def whole(text: str, field: str) -> int:
    """Return a whole number from 0 on.

    Raises:
        ProtocolError: it is not such a number.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise ProtocolError(f"Expected a whole number, got {text[:32]!r}.", field=field)
    return int(text)


def instant(text: str, field: str) -> int:
    """Return an instant in ms since 1970 UTC, from that number or from ISO 8601; without a zone it is UTC.

    Raises:
        ProtocolError: it is neither.
    """
    if text.isascii() and text.isdigit():
        return whole(text, field)
    try:
        at = datetime.fromisoformat(text)
        return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise ProtocolError(
            f"Expected ms since 1970, or a time such as 2026-11-21T09:00:00Z, got {text[:40]!r}.", field=field
        ) from None


def own_sessions_only(session: str | None, prefix: str | None) -> None:
    """Check that the holder of a client secret names one of its own sessions; `prefix` None: an API key.

    Raises:
        AuthError: 403.
    """
    if prefix is not None and not (session or "").startswith(prefix):
        raise AuthError(
            "A client secret reads only the turns of its own sessions: add ?session= with the id of one of them, from "
            "its session.created.",
            code="own_turns_only",
            status=403,
        )


def _refuse_unknown(query: Query, known: tuple[str, ...]) -> None:
    unknown = next((name for name in query if name not in known and name not in ALWAYS), None)
    if unknown is not None:
        raise ProtocolError(f"Unknown parameter; known are {', '.join((*known, 'project'))}.", field=unknown[:64])


def _filters(query: Query) -> dict[str, Any]:
    filters: dict[str, Any] = {name: _text(query[name], name) for name in TEXTS if name in query}
    for name, choices in _CHOICES.items():
        filters |= _one_of(query, name, choices)
    if "arm" in filters:
        filters["arm"] = Arm.read(filters["arm"])
    if "over" in filters:
        filters["over"] = filters["over"] == "true"
    for name in ("since", "until"):
        if name in query:
            filters[f"{name}_ms"] = instant(query[name], name)
    return filters


def _words(query: Query) -> dict[str, Any]:
    return {"words": _text(query["words"], "words")} if "words" in query else {}


def _page(query: Query) -> dict[str, Any]:
    page: dict[str, Any] = {"limit": whole(query["limit"], "limit") if "limit" in query else NEWEST.limit}
    return page | ({"before": Cursor.read(query["before"])} if "before" in query else {})


def _window(query: Query, now_ms: int) -> dict[str, int]:
    if "since" in query or "until" in query:
        raise ProtocolError("Expected either a window, or since and until, got both.", field="window")
    minutes = MINUTES[_one_of(query, "window", tuple(MINUTES))["window"]]
    return {"since_ms": now_ms - minutes * MINUTE_MS, "until_ms": now_ms}


def _text(text: str, field: str) -> str:
    if not 0 < len(text) <= MAX_CHARS:
        raise ProtocolError(f"Expected 1 to {MAX_CHARS} characters, got {len(text)}.", field=field)
    return text


def _one_of(query: Query, field: str, choices: tuple[str, ...]) -> dict[str, Any]:
    if field not in query:
        return {}
    if query[field] not in choices:
        raise ProtocolError(f"Expected one of {', '.join(choices)}, got {query[field][:32]!r}.", field=field)
    return {field: query[field]}
