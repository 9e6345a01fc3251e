"""Compare what an agent did with the expectations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from voicepipe.evals.scenario import Expect, ExpectedCall, texts
from voicepipe.evals.user import has_values

LOOP_CALLS: Final = 5
"""Calls of one function in a step that failed from which on a loop is the likely reason. A turn has at most 8."""


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A tool call; `arguments` are None for a tool that the server ran."""

    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Seen:
    """Facts about one answer, or about a conversation."""

    text: str
    """What the agent said."""

    transcript: str
    """What the server understood."""

    calls: tuple[SeenCall, ...]
    outcome: str | None
    latencies_ms: tuple[int | None, ...]
    """Of each answer that was due; None: no audible one came."""

    answers: int
    """The number of audible answers."""


def unmet(expect: Expect, seen: Seen) -> Iterator[str]:
    """Yield the text of each expectation that is not met, except `judge`."""
    text, transcript = _plain(seen.text), _plain(seen.transcript)
    for part in texts(expect.contains):
        if _plain(part) not in text:
            yield f"contains: expected {part!r} in the answer, got {seen.text!r}"
    for part in texts(expect.not_contains):
        if _plain(part) in text:
            yield f"not_contains: expected no {part!r} in the answer, got {seen.text!r}"
    for pattern in texts(expect.matches):
        if not re.search(pattern, seen.text, re.IGNORECASE):
            yield f"matches: expected {pattern!r} in the answer, got {seen.text!r}"
    for part in texts(expect.transcript):
        if _plain(part) not in transcript:
            yield f"transcript: expected {part!r}, got {seen.transcript!r}"
    if expect.tools is not None:
        yield from _unmet_calls(expect.tools, seen.calls)
    if expect.outcome is not None and seen.outcome != expect.outcome:
        yield f"outcome: expected {expect.outcome}, got {seen.outcome or 'no answer'}"
    if expect.answers is not None and seen.answers != expect.answers:
        yield f"answers: expected {expect.answers} audible, got {seen.answers}"
    if expect.latency_ms is not None:
        yield from _unmet_latencies(expect.latency_ms, seen.latencies_ms)


def _unmet_latencies(limit_ms: int, latencies_ms: Sequence[int | None]) -> Iterator[str]:
    if not latencies_ms:
        yield f"latency_ms: expected an answer within {limit_ms} ms, got none"
    for latency_ms in latencies_ms:
        if latency_ms is None:
            yield f"latency_ms: expected at most {limit_ms}, got no audible answer"
        elif latency_ms > limit_ms:
            yield f"latency_ms: expected at most {limit_ms}, got {latency_ms}"


def _unmet_calls(expected: Sequence[ExpectedCall], calls: Sequence[SeenCall]) -> Iterator[str]:
    got = ", ".join(_call_text(call) for call in calls) or "no call"
    if not expected and calls:
        yield f"tools: expected no call, got {got}"
    left = list(calls)
    for each in expected:
        found = next((call for call in left if _fits(call, each)), None)
        if found is None:
            yield f"tools: expected {_call_text(SeenCall(each.name, each.arguments))}, got {got}"
        else:
            left.remove(found)


def loops(calls: Sequence[SeenCall]) -> Iterator[str]:
    """Yield the functions that a step called at least `LOOP_CALLS` times: a rule must fit their results."""
    for name, n_calls in Counter(call.name for call in calls).items():
        if n_calls >= LOOP_CALLS:
            yield (
                f"called {name} {n_calls} times: with a scripted LLM, an `if` fits the result of {name}, too; "
                "write the rules for results first"
            )


def _fits(call: SeenCall, expected: ExpectedCall) -> bool:
    if call.name != expected.name:
        return False
    return not expected.arguments if call.arguments is None else has_values(call.arguments, expected.arguments)


def _call_text(call: SeenCall) -> str:
    if call.arguments is None:
        return f"{call.name} (run by the server, whose record has no arguments)"
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def _plain(text: str) -> str:
    """Return a text without case, punctuation at words' ends and repeated space: neither is audible."""
    return " ".join(re.sub(r"[^\w\s']+(?=\s|$)|(?<=\s)[^\w\s'$€£+-]+", " ", text.casefold()).split())
