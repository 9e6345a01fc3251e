"""A thread writes journals, to files that no other system user can read, and never fills the disk."""

from __future__ import annotations

import fcntl
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voicepipe.errors import ConfigError
from voicepipe.telemetry.journal import session_files, writer
from voicepipe.telemetry.journal.format import read_journal
from voicepipe.telemetry.journal.port import NO_JOURNAL, Journal
from voicepipe.telemetry.journal.replay import replay
from voicepipe.telemetry.journal.settings import JournalSettings
from voicepipe.telemetry.journal.writer import JournalWriter
from voicepipe.testing.waiting import eventually
from voicepipe.turn import events as e
from voicepipe.turn.journal import Opening
from voicepipe.turn.settings import CoreSettings, TurnSettings

SOUND = np.arange(-400, 400, dtype=np.int16)

Keep = Callable[..., JournalWriter]


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    """A keeper that writes, with settings of its own; stopped at the end."""
    all_journals: list[JournalWriter] = []

    def started(keeps_text: bool = True, **settings: object) -> JournalWriter:
        options = JournalSettings(**{"enabled": True, **settings})  # type: ignore[arg-type]
        journals = JournalWriter(tmp_path / "journals", options, keeps_text=keeps_text)
        all_journals.append(journals)
        journals.start()
        return journals

    yield started
    for journals in all_journals:
        journals.stop()


def session(
    journals: JournalWriter, name: str = "sess_a", *, n_events: int = 3, text: str = "hello", project: str = "acme"
) -> None:
    """Journal a session of a few events, and close its journal."""
    opening = Opening(name, TurnSettings(), CoreSettings())
    core, journal = opening.rebuilt(), journals.open(opening, agent="sales", project=project)
    for n in range(n_events):
        event = e.TranscriptGrew(1, f"{text} {n}")
        journal.record(n, event, core.handle(event, n))
        journal.user_audio(SOUND, 24_000)
        journal.agent_audio(SOUND, 24_000)
    journal.close()


def written(journals: JournalWriter) -> list[Path]:
    journals.stop()
    return sorted(journals.folder.iterdir(), key=lambda path: path.name.partition("-")[2])


def test_a_session_is_written_down(keep: Keep) -> None:
    """All of it, in one file that only its owner can read."""
    journals = keep()
    session(journals)
    (path,) = written(journals)
    journal = read_journal(path.read_bytes())
    assert (journal.opening.session, journal.agent, journal.texts, journal.lacks) == ("sess_a", "sales", "plain", "")
    assert (replay(journal).n_events, replay(journal).difference) == (3, None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journals.folder.stat().st_mode) == 0o700


async def test_events_are_on_the_disk_before_the_session_ends(keep: Keep) -> None:
    """A server that dies takes no more with it than what it was about to write."""
    journals = keep()
    opening = Opening("sess_a", TurnSettings(), CoreSettings())
    journals.open(opening, agent="a").record(5, e.TimePassed(), ())

    async def written() -> bool | None:
        found = [path.read_bytes() for path in journals.folder.glob("*.jsonl")]
        return (bool(found) and found[0].count(b"\n") == 2) or None

    await eventually(written)
    (path,) = journals.folder.iterdir()
    journal = read_journal(path.read_bytes())
    assert ([line.now_ms for line in journal.lines], journal.lacks) == (
        [5],
        "the session had not ended, or its server died",
    )


def test_nothing_is_written_unless_enabled(tmp_path: Path) -> None:
    """Off by default: not even the folder is made."""
    journals = JournalWriter(tmp_path / "journals", JournalSettings(), keeps_text=True)
    journals.start()
    assert journals.open(Opening("s", TurnSettings(), CoreSettings()), agent="a") is NO_JOURNAL
    journals.stop()
    assert not (tmp_path / "journals").exists()


def test_words_are_written_only_where_they_may_be(keep: Keep) -> None:
    journals = keep(keeps_text=False)
    session(journals, text="neighbour")
    (path,) = written(journals)
    assert b"neighbour" not in path.read_bytes()
    assert read_journal(path.read_bytes()).texts == "pseudonymized"


def test_sound_lies_beside_it(keep: Keep) -> None:
    """What both sides said, without gaps, in files that any player reads even if they were cut off."""
    journals = keep(audio=True)
    session(journals)
    agent, _, user = written(journals)
    assert [path.name.partition(".")[2] for path in (agent, user)] == ["agent-24000hz.au", "user-24000hz.au"]
    for path in (agent, user):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        samples, rate_hz = soundfile.read(path, dtype="int16")
        assert rate_hz == 24_000
        assert np.array_equal(samples, np.tile(SOUND, 3))
    path.write_bytes(path.read_bytes()[:-300])
    assert len(soundfile.read(path)[0]) == 3 * len(SOUND) - 150


def test_a_session_has_only_so_much_room(keep: Keep) -> None:
    """Then its journal says that it is not whole, and is read up to there."""
    journals = keep(session_mb=0.01)
    session(journals, n_events=200)
    (path,) = written(journals)
    journal = read_journal(path.read_bytes())
    assert 0 < len(journal.lines) < 200
    assert "journals.session_mb" in journal.lacks
    assert path.stat().st_size < 10_200


def test_the_oldest_make_room(keep: Keep) -> None:
    """All journals together stay within `total_mb`, with what the open one may still need."""
    journals = keep(session_mb=0.02, total_mb=0.06)
    for name in ("sess_1", "sess_2", "sess_3", "sess_4"):
        session(journals, name, n_events=150)
        journals.stop()
        journals.start()
    remaining = [path.name.partition("-")[2] for path in written(journals)]
    assert remaining[-1] == "sess_4.jsonl"
    assert "sess_1.jsonl" not in remaining
    assert sum(path.stat().st_size for path in journals.folder.iterdir()) < 60_000


def test_too_many_at_once_are_refused(keep: Keep) -> None:
    """Each may become as large as one may: there is no room for a fourth."""
    journals = keep(session_mb=0.02, total_mb=0.06)
    opening = Opening("s", TurnSettings(), CoreSettings())
    for n in range(4):
        journals.open(Opening(f"sess_{n}", opening.settings, opening.core), agent="a").record(0, e.TimePassed(), ())
    assert [path.name.partition("-")[2] for path in written(journals)] == [
        "sess_0.jsonl",
        "sess_1.jsonl",
        "sess_2.jsonl",
    ]


def began(journals: JournalWriter, name: str) -> Journal:
    """Return the journal of a session that has begun and goes on."""
    journal = journals.open(Opening(name, TurnSettings(), CoreSettings()), agent="a", project="acme")
    journal.record(0, e.TimePassed(), ())
    on_disk = threading.Event()
    journals.offer(on_disk.set)
    on_disk.wait()
    return journal


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_journal_that_another_worker_writes_stays(keep: Keep) -> None:
    """With the space that it may still need."""
    journals, others = (keep(session_mb=0.02, total_mb=0.06, audio=True) for _ in range(2))
    journal = began(others, "sess_open")
    journal.user_audio(SOUND, 24_000)
    for n in range(4):
        session(journals, f"sess_{n}", n_events=150)
        journals.stop()
        journals.start()
    found = {path.name.partition("-")[2]: path.stat().st_size for path in journals.folder.iterdir()}
    assert {found.pop("sess_open.jsonl", None), found.pop("sess_open.user-24000hz.au", None)}.isdisjoint({None})
    assert sum(found.values()) <= 40_000
    for n in range(150):
        journal.record(n, e.TranscriptGrew(1, f"hello {n}"), ())
    journal.close()
    others.stop()
    sizes = [path.stat().st_size for path in journals.folder.glob("*-sess_open.*")]
    assert (len(sizes), sum(sizes) > 15_000) == (2, True)
    assert total_bytes(journals.folder) < 60_200


def test_too_many_at_once_of_all_workers_are_refused(keep: Keep) -> None:
    all_journals = [keep(session_mb=0.02, total_mb=0.06) for _ in range(4)]
    open_ones = [began(journals, f"sess_{n}") for n, journals in enumerate(all_journals)]
    folder = all_journals[0].folder
    assert sorted(path.name.partition("-")[2] for path in folder.iterdir()) == [f"sess_{n}.jsonl" for n in range(3)]
    open_ones[0].close()
    all_journals[0].stop()
    began(all_journals[3], "sess_4")
    assert len(list(folder.glob("*-sess_4.jsonl"))) == 1


def test_a_journal_that_ended_with_its_worker_is_old(keep: Keep) -> None:
    """Also for a worker that has seen it open."""
    journals, others = (keep(session_mb=0.02, total_mb=0.04) for _ in range(2))
    began(others, "sess_open")
    began(journals, "sess_1")
    began(journals, "sess_refused")
    others.stop()
    began(journals, "sess_2")
    assert [path.name.partition("-")[2] for path in written(journals)] == ["sess_1.jsonl", "sess_2.jsonl"]


def test_a_journal_is_locked_before_others_see_it(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a worker could take it for an old one."""
    seen: list[list[Path]] = []

    def fails(file: object, how: int) -> None:
        seen.append(list(journals.folder.glob("*.jsonl")))
        raise OSError

    journals = keep()
    monkeypatch.setattr(fcntl, "flock", fails)
    session(journals)
    assert (written(journals), seen) == ([], [[]])


def test_a_file_of_another_user_is_old(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that once ran as root left it."""
    journals = keep(keep_days=1)
    (journals.folder / "5-sess_old.jsonl").write_text("x")

    def refused(path: Path, mode: str) -> object:
        raise PermissionError

    monkeypatch.setattr(Path, "open", refused)
    session(journals)
    assert [path.name.partition("-")[2] for path in written(journals)] == ["sess_a.jsonl"]


def test_what_is_old_goes(keep: Keep) -> None:
    """By the instant in its name, when the next session begins."""
    journals = keep(keep_days=1)
    for name in ("5-sess_old.jsonl", "5-sess_old.user-24000hz.au", "notes.txt"):
        (journals.folder / name).write_text("x")
    session(journals)
    assert [path.name.partition("-")[2] for path in written(journals)] == ["", "sess_a.jsonl"]


def test_one_session_can_be_deleted(keep: Keep) -> None:
    """Its sound too, and no other's."""
    journals = keep(audio=True)
    session(journals, "sess_a")
    session(journals, "sess_ab")
    journals.stop()
    assert journals.delete_session("acme", "sess_a") == 3
    assert len(written(journals)) == 3
    assert journals.delete_session("acme", "sess_a") == 0


def test_another_project_deletes_nothing(keep: Keep) -> None:
    """The same holds while the journal is being written. A file that names no owner may be deleted."""
    journals = keep(audio=True)
    session(journals)
    journals.stop()
    (journals.folder / "5-sess_a.user-24000hz.au").write_bytes(b"")
    assert journals.delete_session("bank", "sess_a") == 1
    assert len(written(journals)) == 3


def test_a_journal_that_another_worker_begins_is_not_deleted(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner is not on the disk yet."""
    journals, others = keep(), keep()
    with monkeypatch.context() as patch:
        patch.setattr(session_files.SessionFiles, "flush", lambda files: False)
        began(others, "sess_a")
        assert [path.stat().st_size for path in journals.folder.iterdir()] == [0]
        for each in (journals, others):
            assert each.delete_session("acme", "sess_a") == 0
    others.stop()
    assert journals.delete_session("acme", "sess_a") == 1


def test_a_disk_that_is_too_slow_costs_the_rest_of_a_journal(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is dropped and counted, and the journal says where it ends."""
    monkeypatch.setattr(writer, "WAITING", 4)
    journals = JournalWriter(keep().folder, JournalSettings(enabled=True), keeps_text=True)
    journal = journals.open(Opening("sess_slow", TurnSettings(), CoreSettings()), agent="a")
    for n in range(10):  # the writer has not started yet
        journal.record(n, e.TimePassed(), ())
    journal.close()
    journals.start()
    journals.stop()
    found = read_journal(next(journals.folder.glob("*sess_slow.jsonl")).read_bytes())
    assert (len(found.lines), found.lacks) == (3, "events came faster than the disk wrote them (7 events)")
    assert journals.dropped > 0


def test_a_disk_that_fails_costs_nothing_else(keep: Keep) -> None:
    """The folder is gone: the session goes on, and so does the next one's journal when it is back."""
    journals = keep()
    journals.folder.rmdir()
    session(journals)
    journals.stop()
    journals.start()
    session(journals, "sess_b")
    assert [path.name.partition("-")[2] for path in written(journals)] == ["sess_b.jsonl"]


def test_a_full_disk_is_logged_once(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And not with every event."""
    with monkeypatch.context() as patch:
        patch.setattr(session_files, "_private", lambda path: Path("/dev/full").open("wb"))  # noqa: SIM115
        journals = keep()
        session(journals, n_events=50)
        journals.stop()
    assert [record.getMessage() for record in caplog.records] == ["storage_failed"]


def test_a_folder_that_can_t_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "journals").write_text("a file")
    journals = JournalWriter(tmp_path / "journals" / "in", JournalSettings(enabled=True), keeps_text=True)
    with pytest.raises(ConfigError, match=r"journals\.enabled: can't make"):
        journals.start()


@pytest.mark.parametrize("wrong", [{"session_mb": 0}, {"keep_days": -1}, {"total_mb": 1.0, "session_mb": 2.0}])
def test_settings_that_can_t_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"journals\."):
        JournalSettings(**wrong)  # type: ignore[arg-type]
