"""Log lines: whole, attributable, and without secrets."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import string
import threading
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.telemetry import log
from voicepipe.telemetry.redact import names_secret, redact
from voicepipe.testing.records import turn_record
from voicepipe.turn.settings import BudgetLimits

KEY = "Zx81QwErTy0123456789"


class Terminal(io.StringIO):
    """A stream that a person looks at."""

    def isatty(self) -> bool:
        return True


def logged(*calls: Any, style: log.Style = "json") -> list[str]:
    stream = io.StringIO()
    with log.logging_to(stream, style=style):
        for call in calls:
            call()
    return stream.getvalue().removesuffix("\n").split("\n")


def test_a_line_is_json_with_its_session_and_turn() -> None:
    """Time, level, event, ids, and the figures as numbers."""
    (line,) = logged(lambda: log.log_overrun("sess_1", "turn_2", stage="llm_ttft", owner="groq", over_ms=312))
    entry = json.loads(line)
    assert entry.pop("at").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "event": "stage_over_limit",
        "session": "sess_1",
        "turn": "turn_2",
        "stage": "llm_ttft",
        "owner": "groq",
        "over_ms": 312,
    }


def test_a_session_that_was_stuck_is_an_error_and_counted() -> None:
    """With the states it was found in."""
    (line,) = logged(lambda: log.log_stuck("sess_1", user="ended", agent="idle", so_far=2))
    entry = json.loads(line)
    assert {name: entry[name] for name in ("level", "event", "session", "user", "agent", "so_far")} == {
        "level": "error",
        "event": "session_stuck",
        "session": "sess_1",
        "user": "ended",
        "agent": "idle",
        "so_far": 2,
    }


def test_the_style_fits_the_reader() -> None:
    """A person at a terminal gets plain lines, a file gets JSON, unless the setting says otherwise."""
    cases: tuple[tuple[io.StringIO, log.Style, bool], ...] = (
        (Terminal(), "auto", True),
        (io.StringIO(), "auto", False),
        (Terminal(), "json", False),
    )
    for stream, style, human in cases:
        with log.logging_to(stream, style=style):
            log.log_event("session_opened", session="sess_1", project="p", agent="default")
        assert ("session=sess_1 project=p agent=default" in stream.getvalue()) is human


def test_a_closed_turn_is_logged_with_its_outcome_and_without_text() -> None:
    """Neither side's text is in the line; a failed turn is a warning."""
    record = turn_record(outcome="failed", reason="llm_timeout")
    (line,) = logged(lambda: log.log_turn_closed(record, "default"))
    entry = json.loads(line)
    assert (entry["level"], entry["outcome"], entry["reason"], entry["total_ms"]) == (
        "warning",
        "failed",
        "llm_timeout",
        983,
    )
    assert "noon" not in line
    assert "What time" not in line


async def test_lines_bear_the_session_that_is_worked_for() -> None:
    """Those of tasks that are born in its work too, whatever else runs; and no longer than it lasts."""

    async def work() -> None:
        log.log_event("provider_failed", provider="a/m")

    async def session(name: str) -> None:
        with log.working_for(name):
            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                group.create_task(work())
            log.log_event("provider_failed", session="sess_other")
            log.log_crash("here", ValueError("x"))

    stream = io.StringIO()
    with log.logging_to(stream, style="json"):
        async with asyncio.TaskGroup() as group:
            group.create_task(session("sess_1"))
            group.create_task(session("sess_2"))
        await session("sess_3")
        await work()
    sessions = [json.loads(line).get("session") for line in stream.getvalue().splitlines()]
    assert sorted(map(str, sessions)) == sorted([*("sess_1", "sess_2", "sess_3", "sess_other") * 3, "None"])


def test_a_turn_that_broke_a_limit_says_which_and_what_would_move_it() -> None:
    """And what was done about it."""
    late = turn_record(limits=BudgetLimits(llm_ttft_ms=100), actions=("hedge", "fallback"))
    (line,) = logged(lambda: log.log_turn_closed(late, "sales"))
    entry = json.loads(line)
    assert (entry["breach"], entry["owner"]) == ("llm_ttft", "fake-llm")
    assert (entry["setting"], entry["saves_ms"]) == ("agents.sales.llm", 135)
    assert entry["actions"] == "hedge,fallback"
    assert entry["verdict"] == "within"


def test_a_healthy_turn_names_nothing() -> None:
    """Its chosen silence is half of it, and no limit that was broken."""
    (line,) = logged(lambda: log.log_turn_closed(turn_record(), "default"))
    assert not {"breach", "owner", "setting", "saves_ms"} & json.loads(line).keys()


@pytest.mark.parametrize(
    "text",
    [
        f"ek_{KEY}",
        f"sk-{KEY}",
        f"webhook whsec_{KEY}",
        f"key vp_demo_{KEY}, thanks",
        f"Authorization: Bearer {KEY}",
        f"authorization: token {KEY}",
        f"{{'Authorization': 'Basic {KEY}=='}}",
        f"GET /v1/listen?api_key={KEY}&x=1",
        f"wss://host/v1/realtime?token={KEY}",
        f'{{"api-key": "{KEY}"}}',
        f'{{\\"xi-api-key\\": \\"{KEY}\\"}}',
        f"OPENAI_API_KEY={KEY}",
        f"client_secret={KEY}",
        f"password: '{KEY}'",
        f"https://user:{KEY}@host/path",
        f"openai-insecure-api-key.ek_{KEY}",
        f"eyJhbGciOiJIUzI1NiJ9.{KEY}.{KEY}",
    ],
)
@pytest.mark.parametrize("style", ["json", "human"])
def test_secrets_are_hidden_wherever_they_stand(text: str, style: log.Style) -> None:
    """In fields, in messages of other libraries, in their arguments, in exceptions and what caused them."""

    def broken() -> None:
        try:
            try:
                raise ValueError(text)
            except ValueError as cause:
                raise RuntimeError("around it") from cause
        except RuntimeError as error:
            log.log_crash("somewhere", error)

    lines = logged(
        lambda: log.log_event("something_happened", why=text),
        lambda: logging.getLogger("aiohttp.access").warning("request %s", text),
        broken,
        style=style,
    )
    assert len(lines) >= 3
    assert KEY not in "\n".join(lines)
    assert "***" in lines[0]


@pytest.mark.parametrize("name", ["api_key", "OPENAI_API_KEY", "token", "client_secret", "authorization", "password"])
def test_a_field_with_a_secret_name_is_hidden(name: str) -> None:
    """Whatever its value looks like."""
    fields: dict[str, Any] = {name: "harmless"}
    (line,) = logged(lambda: log.log_event("checked", **fields))
    assert json.loads(line)[name] == "***"


@pytest.mark.parametrize(
    "text",
    [
        "turn_12 of sess_3",
        "task-12 ended",
        "max_output_tokens: 200, cached_tokens=3",
        "disk-usage 3 %",
        "http://127.0.0.1:8080/v1",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Ids, counts and addresses are what a log is for."""
    assert redact(text) == text
    assert not names_secret("output_tokens")


@given(
    before=st.text(max_size=30),
    secret=st.text(string.ascii_letters + string.digits, min_size=20, max_size=40),
    after=st.text(max_size=30),
)
def test_a_key_is_hidden_whatever_surrounds_it(before: str, secret: str, after: str) -> None:
    """Any text before it that doesn't make it part of a longer word, any text after it."""
    assert secret not in redact(f"{before} sk-{secret} {after}").replace(before, "").replace(after, "")


@given(text=st.text())
def test_any_text_makes_one_line_of_json(text: str) -> None:
    """Newlines, quotes, control characters and halves of emoji neither break the line nor raise."""
    (line,) = logged(lambda: log.log_event("happened", why="x" + text))
    assert json.loads(line)["why"].startswith("x")


def test_a_human_line_stays_one_line() -> None:
    """A vendor's text can't add a line of its own or move the terminal's cursor."""
    (line,) = logged(lambda: log.log_event("happened", why="a\nINFO forged\x1b[2J\x9b2J"), style="human")
    assert line.isprintable()


def test_a_crash_has_its_traceback() -> None:
    """One line of JSON with where, what and the stack."""
    try:
        raise KeyError("gone")
    except KeyError as error:
        (line,) = logged(partial(log.log_crash, "record-writer", error, session="s"))
    entry = json.loads(line)
    assert (entry["event"], entry["where"], entry["session"], entry["level"]) == (
        "crashed",
        "record-writer",
        "s",
        "error",
    )
    assert "KeyError: 'gone'" in entry["exception"]


def test_chatter_of_other_libraries_is_left_out() -> None:
    """Their warnings appear, with their name; their info does not."""
    other = logging.getLogger("some.library")
    (line,) = logged(lambda: other.info("hello"), lambda: other.warning("careful"))
    assert (json.loads(line)["event"], json.loads(line)["logger"]) == ("careful", "some.library")


def test_a_broken_line_of_another_library_is_counted() -> None:
    """Arguments that don't fit their format raise nothing, and the next line reports that one is missing."""
    broken = logging.LogRecord("some.library", logging.WARNING, "x.py", 1, "%d", ("no number",), None)
    first, second = logged(
        lambda: logging.getLogger().handlers[-1].handle(broken), lambda: logging.getLogger("x").warning("fine")
    )
    assert (json.loads(first)["event"], json.loads(first)["count"]) == ("log_lines_dropped", 1)
    assert json.loads(second)["event"] == "fine"


def test_a_stuck_stream_does_not_block_logging() -> None:
    """While stderr is stuck, logging returns; lines without room are counted and reported once stderr moves again."""

    class Stuck(io.StringIO):
        free = threading.Event()

        def write(self, text: str) -> int:
            assert self.free.wait(timeout=60)
            return super().write(text)

    stream = Stuck()
    with log.logging_to(stream, style="json"):
        for number in range(10_100):
            log.log_event("counted", number=number)
        stream.free.set()
    entry = [json.loads(line) for line in stream.getvalue().splitlines()]
    dropped = [line["count"] for line in entry if line["event"] == "log_lines_dropped"]
    assert len([line for line in entry if line["event"] == "counted"]) + sum(dropped) == 10_100
    assert sum(dropped) >= 99


def test_leaving_puts_the_levels_back() -> None:
    """What was set up is taken down."""
    before = logging.getLogger().handlers[:], logging.getLogger().level
    logged(lambda: log.log_event("happened"))
    assert (logging.getLogger().handlers[:], logging.getLogger().level) == before
