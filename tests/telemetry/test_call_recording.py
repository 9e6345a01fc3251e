"""The recording of a call: both sides on one time line, bounded, and kept with the records."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from voicepipe.audio.samples import Samples, silence
from voicepipe.clock import unix_ms
from voicepipe.errors import ConfigError
from voicepipe.telemetry.recording import writer
from voicepipe.telemetry.recording.folder import RecordingFolder, StoredRecording
from voicepipe.telemetry.recording.settings import RecordingSettings
from voicepipe.telemetry.recording.timeline import RATE_HZ, AgentTimeline, PlacedAudio, UserTrack
from voicepipe.telemetry.recording.work_file import WorkFile
from voicepipe.telemetry.recording.writer import RecordingWriter
from voicepipe.testing.waiting import WAIT_S

FRAME_MS = 20
WITHIN_MS = 20
"""How exactly a click lands."""

CLICK_MS = 5


def click(duration_ms: int, at_ms: int, rate_hz: int) -> Samples:
    """Silence with a click in it."""
    samples = silence(duration_ms * rate_hz // 1_000)
    start = at_ms * rate_hz // 1_000
    samples[start : start + CLICK_MS * rate_hz // 1_000] = 20_000
    return samples


def frames(samples: Samples, rate_hz: int) -> list[Samples]:
    n = FRAME_MS * rate_hz // 1_000
    return [samples[i : i + n] for i in range(0, len(samples), n)]


def clicks_ms(channel: Samples, rate_hz: int = RATE_HZ) -> list[int]:
    """When the clicks of a channel begin."""
    loud = np.flatnonzero(np.abs(channel.astype(int)) > 8_000)
    starts = [loud[i] for i in range(len(loud)) if i == 0 or loud[i] - loud[i - 1] > rate_hz // 50]
    return [int(start) * 1_000 // rate_hz for start in starts]


@contextmanager
def opened(folder: Path, **settings: float) -> Iterator[RecordingWriter]:
    """A writer whose threads run; leaving waits until all is on the disk."""
    recordings = RecordingWriter(folder, RecordingSettings(**settings))
    recordings.start()
    try:
        yield recordings
    finally:
        recordings.stop()


def recorded(folder: Path) -> Samples:
    """The only recording, (n_samples, 2)."""
    (path,) = folder.glob("*/*.flac")
    samples, rate_hz = soundfile.read(path, dtype="int16")
    assert rate_hz == RATE_HZ
    return np.asarray(samples)


def late_by(number: int) -> int:
    """A network's delay of a frame, in ms: some jitter, and a hiccup of half a second from frame 100 on."""
    return 520 - (number - 100) * FRAME_MS if 100 <= number < 125 else (7 * number) % 9


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000])
def test_a_click_lands_at_its_time_in_each_channel(tmp_path: Path, rate_hz: int) -> None:
    """Within 20 ms, though the user's frames come late and in bursts: left the user's, right the agent's."""
    begun_ms = 700  # the recording begins in mid-call
    said = np.concatenate([click(1_000, at_ms, rate_hz) for at_ms in (400, 300, 100, 900, 500)])
    expected = [400, 1_300, 2_100, 3_900, 4_500]
    with opened(tmp_path) as recordings:
        recorder = recordings.open("acme", "sess_1", "anna")
        recorder.agent_audio(click(100, 0, RATE_HZ), RATE_HZ, 600)  # before it
        recorder.begin(begun_ms)
        for number, frame in enumerate(frames(said, rate_hz)):
            came_ms = begun_ms + (number + 1) * FRAME_MS + late_by(number)
            recorder.user_audio(frame, rate_hz, came_ms)
            if number == 50:
                recorder.agent_audio(click(2_000, 250, RATE_HZ), RATE_HZ, begun_ms + 1_000)
                recorder.agent_audio(click(500, 100, RATE_HZ), RATE_HZ, begun_ms + 1_010)  # plays after the other
        recorder.close(begun_ms + 5_000)
    left, right = recorded(tmp_path).T
    assert len(left) == 5 * RATE_HZ
    assert [abs(at_ms - want) <= WITHIN_MS for at_ms, want in zip(clicks_ms(left), expected, strict=True)] == [True] * 5
    assert [abs(at_ms - want) <= WITHIN_MS for at_ms, want in zip(clicks_ms(right), [1_250, 3_100], strict=True)] == [
        True
    ] * 2


def test_a_pause_of_the_client_is_silence() -> None:
    """Muted, it sends nothing: what follows stands where it was said, not behind what came before."""
    track, came, placed = UserTrack(), 0, list[PlacedAudio]()
    for gap_ms in (0, 3_000):
        came += gap_ms * RATE_HZ // 1_000
        for frame in frames(click(1_500, 200, RATE_HZ), RATE_HZ):
            came += len(frame)
            placed += track.push(frame, RATE_HZ, came)
    placed += track.flush()
    line = silence(placed[-1].end)
    for each in placed:
        line[each.start : each.end] = each.samples
    assert clicks_ms(line) == [200, 4_700]


@pytest.mark.parametrize("parts_per_million", [-400, 400])
def test_a_client_whose_clock_is_wrong_stays_on_the_line(parts_per_million: int) -> None:
    """Ten minutes are 240 ms off: they are put in or left out where it is quiet."""
    track, placed, last_ms = UserTrack(), list[PlacedAudio](), 0.0
    for number, frame in enumerate(frames(np.concatenate([click(1_000, 600, RATE_HZ)] * 600), RATE_HZ)):
        came_ms = (number + 1) * FRAME_MS * (1 + parts_per_million / 1e6)
        placed += track.push(frame, RATE_HZ, round(came_ms * RATE_HZ / 1_000))
        last_ms = came_ms
    placed += track.flush()
    clicks = [each for each in placed if np.abs(each.samples).max() > 8_000]
    assert len(clicks) == 600
    off_ms = abs(clicks[-1].start * 1_000 / RATE_HZ - (last_ms - 400 * (1 + parts_per_million / 1e6)))
    assert off_ms <= WITHIN_MS
    assert all(each.end <= after.start for each, after in pairwise(placed))


def test_audio_that_is_sent_faster_than_it_was_spoken_is_recorded_in_full() -> None:
    """A file in one go: it begins with the recording, and its pauses stay."""
    said = np.concatenate([click(1_500, 200, RATE_HZ)] * 2)
    track = UserTrack()
    placed = [*track.push(said, RATE_HZ, 500 * RATE_HZ // 1_000), *track.flush()]
    line = np.concatenate([each.samples for each in placed])
    assert (placed[0].start, clicks_ms(line)) == (0, [200, 1_700])


def test_what_the_user_interrupts_is_cut_where_it_was() -> None:
    """The client plays no more of what it has; the next answer begins when it is sent."""
    track = AgentTimeline()
    first = track.push(np.ones(RATE_HZ, np.int16), RATE_HZ, 0)
    cut = track.stop(RATE_HZ // 4)
    again = track.push(np.ones(10, np.int16), RATE_HZ, RATE_HZ // 2)
    assert (first.start, cut.start, cut.end, again.start) == (0, RATE_HZ // 4, RATE_HZ, RATE_HZ // 2)
    assert not cut.samples.any()
    assert len(track.stop(RATE_HZ).samples) == 0


def test_nothing_is_on_the_disk_before_the_recording_begins(tmp_path: Path) -> None:
    """Nor after a call in which it never began."""
    with opened(tmp_path) as recordings:
        recorder = recordings.open("acme", "sess_1", "")
        recorder.user_audio(np.ones(100, np.int16), RATE_HZ, 20)
        recorder.agent_audio(np.ones(100, np.int16), RATE_HZ, 20)
        recorder.agent_stops(30)
        recorder.close(40)
    assert list(tmp_path.rglob("*")) == []


def call(recordings: RecordingWriter, session: str, *, project: str = "acme", user: str = "", seconds: int = 1) -> None:
    """A recorded call of noise."""
    recorder = recordings.open(project, session, user)
    recorder.begin(0)
    noise = np.random.default_rng(1).integers(-9_000, 9_000, seconds * RATE_HZ).astype(np.int16)
    recorder.user_audio(noise, RATE_HZ, seconds * 1_000)
    recorder.close(seconds * 1_000)


def test_recordings_are_found_and_deleted_by_session_and_by_user(tmp_path: Path) -> None:
    """Of the project that has them; a request waits until the recording is complete. File names show no user."""
    with opened(tmp_path) as recordings:
        call(recordings, "sess_1", user="anna")
        call(recordings, "sess_1", project="bank", user="anna")
        call(recordings, "sess-2", user="anna")
        call(recordings, "sess_3", user="bert")
        found = recordings.find("acme", "sess_1")
        assert found is not None
        assert found.is_done
        assert recordings.find("shop", "sess_1") is None
        assert recordings.find(None, "sess-2") is not None
        assert recordings.find("bank", "sess_1") is not None
        assert recordings.find("acme", "sess_3") is not None
        assert not [path for path in tmp_path.rglob("*") if "anna" in path.name or "acme" in path.name]
        assert {path.stat().st_mode & 0o077 for path in tmp_path.rglob("*")} == {0}
        assert recordings.delete_session("acme", "sess_1") == 1
        assert recordings.find("acme", "sess_1") is None
        assert recordings.delete_user("acme", "") == 0
        assert recordings.delete_user("acme", "anna") == 1
        assert recordings.find("bank", "sess_1") is not None
        assert recordings.find("acme", "sess_3") is not None


def test_a_running_call_is_found_and_not_complete(tmp_path: Path) -> None:
    """Its file can't be played yet."""
    with opened(tmp_path) as recordings:
        recorder = recordings.open("acme", "sess_1", "")
        recorder.begin(0)
        found = recordings.find("acme", "sess_1")
        assert found is not None
        assert not found.is_done
        recorder.close(0)


def test_what_a_killed_process_has_left_is_completed(tmp_path: Path) -> None:
    """At the next start, unless its owner lives: then the file is locked."""
    place = RecordingFolder(tmp_path).new_path("acme", "sess_1", "", 5)
    alive = WorkFile(place.with_name("5-sess_2..part"))
    left = WorkFile(place.with_name(place.name + ".part"))
    left.end_at(100)
    left.close()
    with opened(tmp_path):
        pass
    assert {path.name for path in place.parent.iterdir()} == {"5-sess_1..flac", "5-sess_2..part"}
    alive.delete()
    assert len(recorded(tmp_path)) == 100


def test_old_recordings_leave_and_so_do_the_oldest_of_too_many(tmp_path: Path) -> None:
    """By `records.keep_days` and `recordings.total_mb`; one that is being written stays."""
    folder, now_ms, day_ms = RecordingFolder(tmp_path), unix_ms(), 86_400_000
    for days, session, suffix in ((9, "a", ".flac"), (5, "b", ".flac"), (4, "c", ".part"), (1, "d", ".flac")):
        place = folder.new_path("acme", session, "", now_ms - days * day_ms)
        place.with_name(place.name + suffix).write_bytes(bytes(1_000))

    def left() -> list[str]:
        return sorted(each.session for each in folder.all())

    assert folder.trim(now_ms, keep_days=7, max_bytes=10_000) <= 0
    assert left() == ["b", "c", "d"]
    assert folder.trim(now_ms, keep_days=None, max_bytes=2_000) == 0
    assert left() == ["c", "d"]
    assert folder.trim(now_ms, keep_days=None, max_bytes=500) == 500
    assert left() == ["c"]


def test_a_call_is_recorded_up_to_the_limit(tmp_path: Path) -> None:
    """`recordings.max_minutes`; what follows is left out."""
    with opened(tmp_path, max_minutes=0.01) as recordings:
        call(recordings, "sess_1", seconds=2)
    assert len(recorded(tmp_path)) == 0.6 * RATE_HZ


def test_recordings_that_fill_their_room_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no older one can leave; what was recorded until then stays."""
    monkeypatch.setattr(writer, "CHECK_BYTES", 1)
    with opened(tmp_path, total_mb=0.1) as recordings:
        recorder = recordings.open("acme", "sess_1", "")
        recorder.begin(0)
        for second in (1, 2, 3):
            recorder.agent_audio(np.ones(RATE_HZ, np.int16), RATE_HZ, 1_000 * second)
        recorder.close(4_000)
    assert len(recorded(tmp_path)) == 2 * RATE_HZ
    assert [str(getattr(each, "fields", {})["why"])[:19] for each in caplog.records] == ["recordings.total_mb"]


@pytest.mark.parametrize("place", ["pwrite", "open"])
def test_a_full_disk_costs_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """The call goes on, and another is recorded once there is room."""

    def fails(*args: object, **more: object) -> int:
        raise OSError(28, "No space left on device")

    caplog.set_level(logging.WARNING)
    with opened(tmp_path) as recordings:
        with monkeypatch.context() as full:
            full.setattr(os, place, fails)
            call(recordings, "sess_1")
            assert recordings.find("acme", "sess_1") is None
        call(recordings, "sess_2")
        assert recordings.find("acme", "sess_2") is not None
    assert [getattr(each, "fields", {}).get("kind") for each in caplog.records][:1] == ["full"]
    assert not list(tmp_path.rglob("*.part"))


def test_a_disk_that_fills_while_it_is_compressed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start compresses it."""

    def fails(*args: object, **more: object) -> object:
        raise soundfile.LibsndfileError(2)

    with monkeypatch.context() as full:
        full.setattr(soundfile, "SoundFile", fails)
        with opened(tmp_path) as recordings:
            call(recordings, "sess_1")
    assert [path.suffix for path in tmp_path.rglob("*.*")] == [".part"]
    with opened(tmp_path):
        pass
    assert len(recorded(tmp_path)) == RATE_HZ


def test_a_slow_disk_drops_audio_and_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted; the beginning and the end of the recording are never dropped."""
    monkeypatch.setattr(writer, "MAX_QUEUED", 2)
    busy, free = threading.Event(), threading.Event()

    def holds() -> None:
        busy.set()
        assert free.wait(WAIT_S)

    with opened(tmp_path) as recordings:
        recordings.enqueue(holds)
        assert busy.wait(WAIT_S)
        recorder = recordings.open("acme", "sess_1", "")
        recorder.begin(0)
        for second in range(3):
            recorder.agent_audio(np.ones(RATE_HZ, np.int16), RATE_HZ, 1_000 * second)
        recorder.close(3_000)
        free.set()
        assert recordings.dropped == 2
        found = recordings.find("acme", "sess_1")
    assert found is not None
    assert len(recorded(tmp_path)) == 3 * RATE_HZ


def test_the_audio_that_waits_has_a_limit_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few long slices take as much memory as many short ones; what has left the queue makes room again."""
    monkeypatch.setattr(writer, "MAX_QUEUED_BYTES", 3 * RATE_HZ)
    busy, free = threading.Event(), threading.Event()

    def holds() -> None:
        busy.set()
        assert free.wait(WAIT_S)

    with opened(tmp_path) as recordings:
        recorder = recordings.open("acme", "sess_1", "")
        recorder.begin(0)
        recordings.enqueue(holds)
        assert busy.wait(WAIT_S)
        recorder.agent_audio(np.ones(RATE_HZ, np.int16), RATE_HZ, 0)  # two bytes a sample
        recorder.agent_audio(np.ones(RATE_HZ, np.int16), RATE_HZ, 0)
        assert recordings.dropped == 1
        free.set()
        assert recordings.find("acme", "sess_1") is not None
        recorder.agent_audio(np.ones(RATE_HZ, np.int16), RATE_HZ, 1_000)
        recorder.close(2_000)
        assert recordings.dropped == 1
    assert recorded(tmp_path)[:, 1].all()


def test_a_recording_that_is_deleted_while_it_is_compressed_stays_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another worker, which can't wait for this one."""
    info = soundfile.info

    def deletes(path: Path) -> object:
        assert RecordingWriter(tmp_path, RecordingSettings()).delete_session("acme", "sess_1") == 1
        return info(path)

    monkeypatch.setattr(soundfile, "info", deletes)
    with opened(tmp_path) as recordings:
        call(recordings, "sess_1")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_name_is_read_as_it_was_written() -> None:
    """Ids may hold dashes and dots."""
    found = StoredRecording(Path("x/17-sess_a-b.c.0f.flac"))
    assert (found.session, found.user, found.began_unix_ms, found.is_done) == ("sess_a-b.c", "0f", 17, True)
    assert StoredRecording(Path("x/no-sess.flac")).began_unix_ms == 0
    assert StoredRecording(Path("x/no-sess.flac")).duration_ms() == 0


@pytest.mark.parametrize("wrong", [{"max_minutes": 0}, {"total_mb": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    """By name."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RecordingSettings(**wrong)
