"""The transcript of a session: its turns in order, with latencies and function calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from voicepipe.telemetry.store.port import StoredTurn, turn_plain

MAX_TURNS: Final = 500
"""Turns of a session that its transcript has: about an hour of talk, and 250 kB. The oldest are left out."""

_FIELDS: Final = ("id", "started_at", "cause", "outcome", "total_ms", "language", "tools")


def transcript_turn(turn: StoredTurn) -> dict[str, Any]:
    """Return a turn of the transcript.

    The fields `id`, `started_at`, `cause`, `outcome`, `total_ms`, `language` and `tools` of its record; `stages`, an
    object: stage -> ms that the user waited for it; `user` and `agent`: what was said, and what was heard.
    """
    plain = turn_plain(turn)
    stages: dict[str, int] = {}
    for part in plain["contributions"]:
        stages[part["stage"]] = stages.get(part["stage"], 0) + part["duration_ms"]
    return {
        **{name: plain[name] for name in _FIELDS},
        "stages": stages,
        "user": plain["user_text"],
        "agent": plain["played_text"],
        "agent_name": turn.agent,
    }


def spoken_text(turns: Sequence[dict[str, Any]]) -> str:
    """Return what both sides said, a line each; empty: nothing, or texts are not stored."""
    return "\n".join(line for turn in turns for line in _spoken_lines(turn))


def transcript_text(turns: Sequence[dict[str, Any]], *, turns_left_out: int, summary: str) -> str:
    """Return the transcript as plain text: what was said, the function calls, and the latencies."""
    lines = [f"Summary: {summary}", ""] if summary else []
    if turns_left_out:
        lines += [f"({turns_left_out} earlier turns are left out)", ""]
    for turn in turns:
        lines += [f"[{turn['started_at']}] {_latency(turn)}", *_spoken_lines(turn, _calls(turn)), ""]
    return "\n".join(lines)


def _spoken_lines(turn: dict[str, Any], between: Sequence[str] = ()) -> list[str]:
    user, agent = turn["user"], turn["agent"]
    return [*([f"User: {user}"] if user else []), *between, *([f"Agent: {agent}"] if agent else [])]


def _calls(turn: dict[str, Any]) -> list[str]:
    return [
        f"Tool: {call['name']}{call['arguments'] and ' '}{call['arguments']}, {call['ran_by']}, {call['outcome']}"
        + ("" if call["took_ms"] is None else f", {call['took_ms']} ms")
        for call in turn["tools"]
    ]


def _latency(turn: dict[str, Any]) -> str:
    outcome = turn["outcome"] or "running"
    if turn["total_ms"] is None:
        return outcome
    stages = ", ".join(f"{stage} {ms}" for stage, ms in turn["stages"].items())
    return f"{outcome}, {turn['total_ms']} ms" + (f" ({stages})" if stages else "")
