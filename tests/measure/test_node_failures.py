"""Nodes that are killed and restarted under load lose nothing; `tests.measure.node_failures` does more of it.

The cut of the store is not among the tests: its interfaces change the machine's network, at which each Chromium beside
it breaks off its requests.
"""

from __future__ import annotations

import asyncio
from unittest import mock

import numpy as np
import pytest

from tests.measure.node_failures import Mode, is_good, measured, over, report
from tests.measure.node_users import (
    LEVEL,
    WORDS,
    Counts,
    SpeakingUser,
    User,
    WordMeter,
    answer_cue,
    history_faults,
    last_audible,
    speech_cue,
)
from voicepipe import clock
from voicepipe.client.events import ReplyAudio
from voicepipe.session.pending_replies import GO_ON
from voicepipe.testing.fakes.script import ReceivedRequest


def request(*messages: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("mode", "n_failures"), [("kill", 5), ("rolling", 3)])
async def test_users_lose_nothing(mode: Mode, n_failures: int) -> None:
    """Three nodes behind nginx, with a real Redis: each answer comes, and each word of it once."""
    counts = await measured(mode, n_failures, n_users=4, seed=7)
    assert is_good(counts), "\n".join((report(counts), *counts.notes))
    assert counts.resumed_ms, "no session has moved"


@pytest.mark.long
@pytest.mark.slow
async def test_users_who_speak_lose_nothing() -> None:
    """Their microphones are always on, and each turn has one record in Postgres, also where its node was killed."""
    counts = await measured("kill", 2, n_users=2, seed=7, kind=SpeakingUser, with_postgres=True)
    assert is_good(counts), "\n".join((report(counts), *counts.notes))
    assert counts.records["completed"] == counts.questions, report(counts)


def test_time_in_which_the_store_hung_is_left_out() -> None:
    counts = Counts(resumed=[(100, 400), (0, 50), (250, 260)], store_away=[(50, 300)])
    assert counts.resumed_ms == [300, 50, 10]
    assert counts.resumed_beyond_store_ms == [100, 50, 0]


def test_a_turn_over_budget_is_counted_once_by_its_user() -> None:
    """From the question to the first sound, which later sounds do not renew."""
    counts = Counts()
    user = User("one", "http://127.0.0.1:1", counts, asyncio.Event())
    sound = ReplyAudio("resp_1", np.full(24, LEVEL, dtype="<i2").tobytes(), "item_1")
    now_ms = [500]
    with mock.patch.object(clock, "monotonic_ms", side_effect=lambda: now_ms[0]):
        for requested_ms, sound_ms in ((500, 1_500), (2_000, 3_001)):
            now_ms[0] = requested_ms
            user._note_request()
            for at_ms in (sound_ms, sound_ms + 5_000):
                now_ms[0] = at_ms
                user._take(WordMeter(), sound)
    assert counts.first_sound_ms == [1_000, 1_001]
    assert over(counts.first_sound_ms) == 1


def test_the_end_of_speech_is_its_last_audible_sample() -> None:
    assert last_audible(np.array([0, 900, -900, 1, 0], dtype=np.int16)) == 3
    assert last_audible(np.zeros(3, dtype=np.int16)) == 0


def test_a_user_counts_words_by_their_levels() -> None:
    """A word that goes on in the next piece is one word; one that is said again in another item is two."""
    meter = WordMeter()
    for item, levels in (("i1", [1, 1, 2]), ("i1", [2, 3]), ("i2", [3, 0, 4])):
        meter.take(item, np.array(levels, dtype=np.int16) * LEVEL)
    assert meter.received == [1, 2, 3, 3, 4]
    assert not meter.n_complete


def test_an_answer_goes_on_behind_the_words_that_were_received() -> None:
    whole = answer_cue(request(("system", "Hello."), ("user", "What?")))
    rest = answer_cue(request(("system", GO_ON.format(played=" ".join(WORDS[:5]))), ("user", "What?")))
    assert [token.strip() for token in (whole.tokens[0], rest.tokens[0])] == [WORDS[0], WORDS[5]]


def test_a_word_that_the_history_lacks_is_found() -> None:
    answer = " ".join(WORDS)
    good = request(("user", "?"), ("assistant", answer), ("user", "?"))
    bad = request(("user", "?"), ("assistant", answer[6:]), ("user", "?"))
    assert [len(history_faults(each["messages"])) for each in (good, bad)] == [0, 1]  # type: ignore[arg-type]


def test_the_audio_of_a_clause_has_each_word_as_long() -> None:
    sound = np.frombuffer(speech_cue(ReceivedRequest({"input": "Amber bridge."})).raw or b"", dtype="<i2")
    assert sorted(set(sound)) == [LEVEL, 2 * LEVEL]
