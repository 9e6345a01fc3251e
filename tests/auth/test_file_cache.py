"""What was read of the keys' file serves on while the file can't be read; no request waits for it over and over."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from voicepipe.auth import file_cache
from voicepipe.auth.file_cache import RETRY_MS, FileCache
from voicepipe.auth.sqlite import KeysUnreadable
from voicepipe.storage import StorageHealth


class File:
    """A file of keys whose state and error a test sets, with a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms, self.state, self.n_looks = 1_000, b"1", 0
        self.error: Exception | None = None
        self.health = StorageHealth(lambda: self.now_ms, lambda _: None)
        self.cache: FileCache[str] = FileCache(self.look, self.health)
        monkeypatch.setattr(file_cache, "monotonic_ms", lambda: self.now_ms)

    def look(self) -> bytes:
        self.n_looks += 1
        if isinstance(self.error, OSError):
            raise self.error
        return self.state

    def read(self) -> str:
        if self.error is not None:
            raise self.error
        return f"keys of {self.state.decode()}"

    def get(self) -> str:
        return self.cache.get(self.read)


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> File:
    return File(monkeypatch)


def test_nothing_is_current_before_the_first_reading_and_after_a_change(file: File) -> None:
    assert (file.cache.current(), file.cache.last) == (None, None)
    assert file.get() == file.cache.current() == file.cache.last == "keys of 1"
    file.state = b"2"
    assert file.cache.current() is None
    assert file.get() == "keys of 2"


@pytest.mark.parametrize("error", [OSError("gone"), KeysUnreadable("locked", "locked")])
def test_a_file_that_was_never_read_is_an_error(file: File, error: Exception) -> None:
    file.error = error
    with pytest.raises(type(error)):
        file.get()


@pytest.mark.parametrize("error", [OSError("gone"), KeysUnreadable("locked", "locked")])
def test_a_file_that_can_not_be_read_now_is_remembered_and_tried_again_after_a_while(
    file: File, error: Exception
) -> None:
    file.get()
    file.state, file.error = b"2", error
    assert file.get() == "keys of 1"
    assert file.health.failures("keys") == 1
    n_looks = file.n_looks
    assert file.get() == "keys of 1"
    assert file.n_looks == n_looks, "it is not looked at before its time"
    file.now_ms, file.error = file.now_ms + RETRY_MS, None
    assert file.get() == "keys of 2"
    assert file.health.failing_stores() == ()


def test_an_error_between_stat_and_read_is_reported(file: File) -> None:
    file.get()
    file.state = b"2"

    def breaks() -> str:
        raise OSError("gone")

    assert file.cache.get(breaks) == "keys of 1"
    assert file.health.failures("keys") == 1


def test_without_a_health_to_report_to_it_serves_all_the_same() -> None:
    """As in a command that reads the keys once."""
    states = chain((b"1",), repeat(b"2"))

    def breaks() -> str:
        raise OSError("gone")

    cache: FileCache[str] = FileCache(lambda: next(states), None)
    assert cache.get(lambda: "keys") == "keys"
    assert cache.get(breaks) == "keys"
