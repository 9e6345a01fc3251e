"""The generated secrets of one folder, as the processes that share it see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.sqlite import KeysUnreadable, reading


def test_a_ring_is_current_until_another_process_rotates_its_secret(tmp_path: Path) -> None:
    store, other = KeyStore(tmp_path), KeyStore(tmp_path)
    assert store.current() is None
    store.keyring(1)  # makes the first secret, which changes the file
    ring = store.keyring(1)
    assert store.current() is ring
    rotated = other.rotate(2)
    assert store.current() is None
    assert store.keyring(2).signer.kid == rotated.kid


def test_a_folder_that_is_a_file_is_said_to_be_unreadable(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.write_text("no folder")
    with pytest.raises(KeysUnreadable, match=str(folder)), reading(folder):
        pass
