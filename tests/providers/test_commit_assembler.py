"""Texts that answer commits are matched to them, in whatever order events happen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from voicepipe.ports.transcriber import Final, Interim
from voicepipe.providers.stt.commit_assembler import CommitAssembler, Committed, Partial


def speaking(utterance: int = 1) -> CommitAssembler:
    """An utterance is under way."""
    commits = CommitAssembler()
    assert not commits.begin(utterance)
    commits.pushed()
    return commits


def test_utterance_as_it_goes() -> None:
    """Partial texts grow, the answer replaces them, and more speech is joined to it."""
    commits = speaking()
    assert commits.take(Partial("book a")) == Interim(1, "book a")
    assert commits.take(Partial("book a")) is None
    assert commits.flush(1) == "commit"
    assert commits.take(Partial("book a tab")) == Interim(1, "book a tab")
    assert commits.take(Committed("Book a table")) == Final(1, 1, "Book a table")
    commits.pushed()
    assert commits.take(Partial("for")) == Interim(1, "Book a table for")
    assert commits.flush(2) == "commit"
    assert commits.take(Committed("for two.", "en")) == Final(1, 2, "Book a table for two.", "en")


def test_flush_without_new_sound() -> None:
    """What is known is the answer; while it is under way, it answers the latest flush only."""
    commits = speaking()
    assert commits.flush(1) == "commit"
    assert commits.flush(2) == "wait"
    assert commits.take(Committed("Yes.")) == Final(1, 2, "Yes.")
    assert commits.flush(3) == Final(1, 3, "Yes.")
    assert commits.flush(4, may_return=False) == "commit"
    assert commits.take(Committed("")) == Final(1, 4, "Yes.")


def test_superseded_flush_is_part_of_the_next() -> None:
    commits = speaking()
    assert commits.flush(1) == "commit"
    commits.pushed()
    assert commits.flush(2) == "commit"
    assert commits.take(Committed("first")) == Interim(1, "first")
    assert commits.take(Committed("second")) == Final(1, 2, "first second")


def test_late_answer_is_its_own_utterances() -> None:
    """And so are the partial texts that come before it."""
    commits = speaking()
    assert commits.flush(1) == "commit"
    assert not commits.begin(2)
    commits.pushed()
    assert commits.take(Partial("slow")) == Interim(1, "slow")
    assert commits.take(Committed("Slow.")) == Final(1, 1, "Slow.")
    assert commits.take(Partial("quick")) == Interim(2, "quick")


def test_audio_after_the_last_flush_is_dropped() -> None:
    commits = speaking()
    assert commits.flush(1) == "commit"
    commits.pushed()
    assert commits.take(Committed("Yes.")) == Final(1, 1, "Yes.")
    assert commits.begin(2)
    commits.discarded()
    commits.pushed()
    assert commits.take(Partial("hum")) is None
    assert commits.take(Committed("Hum.")) is None
    assert commits.take(Partial("no")) == Interim(2, "no")


def test_segment_that_the_vendor_ended_itself() -> None:
    """It got too long for it: its text stays, and is no answer."""
    commits = speaking()
    assert commits.take(Committed("A very long")) == Interim(1, "A very long")
    assert commits.flush(1) == "commit"
    assert commits.take(Committed("story.")) == Final(1, 1, "A very long story.")


def test_nothing_has_begun() -> None:
    commits = CommitAssembler()
    assert commits.flush(1) == Final(0, 1, "")
    assert commits.take(Partial("ghost")) is None
    assert commits.take(Committed("ghost")) is None


@given(st.lists(st.sampled_from(["begin", "push", "flush", "answer", "partial"]), max_size=60))
def test_every_flush_is_answered_or_superseded(steps: list[str]) -> None:
    """Once the vendor has answered all commits, the latest flush of each utterance has had exactly one answer, and no
    utterance has words of another."""
    commits, utterance, flush = CommitAssembler(), 0, 0
    owner: list[int] = []  # of the audio of each commit that waits
    requested: dict[int, int] = {}
    finals: list[Final] = []

    def answered() -> None:
        if owner:
            text = commits.take(Committed(f"u{owner.pop(0)}"))
            if isinstance(text, Final):
                finals.append(text)

    for step in steps:
        match step:
            case "begin":
                utterance, flush = utterance + 1, 0
                if commits.begin(utterance):
                    commits.discarded()
                    owner.append(0)
            case "push" if utterance:
                commits.pushed()
            case "flush" if utterance:
                flush += 1
                requested[utterance] = flush
                match commits.flush(flush):
                    case Final() as answer:
                        finals.append(answer)
                    case "commit":
                        owner.append(utterance)
            case "answer":
                answered()
    while owner:
        answered()
    assert not commits.waiting
    answers = [(final.utterance, final.flush) for final in finals]
    assert len(set(answers)) == len(answers)
    assert set(requested.items()) <= set(answers)
    assert all(set(final.text.split()) <= {f"u{final.utterance}"} for final in finals)
