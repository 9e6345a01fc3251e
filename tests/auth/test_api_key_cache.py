"""A key that is found in memory is one that a look into the file would find, and no key costs such a look."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.auth.api_key_cache import ApiKeyCache
from voicepipe.auth.apikeys import ApiKeys, KeyTable
from voicepipe.errors import AuthError, UnknownCredential

UNKNOWN = "vp_acme_" + "a" * 51


def found(known: ApiKeyCache, text: str) -> str:
    """Look a key up as the server does; returns its id, or the code of the refusal."""
    if not known.is_current():
        known.read()
    try:
        return known.find(text).id
    except AuthError as refused:
        return refused.code


def test_a_key_is_found_by_its_whole_text_only(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    known = ApiKeyCache(keys)
    assert found(known, UNKNOWN) == "invalid_api_key"
    made = keys.create("acme", now_s=1)
    assert found(known, made.text) == made.key.id
    assert found(known, made.text[:-1]) == "invalid_api_key"
    assert found(known, made.text[:-1] + "!") == "invalid_api_key"


def test_a_change_by_any_process_is_seen_at_once(tmp_path: Path) -> None:
    known = ApiKeyCache(ApiKeys(tmp_path))
    made = ApiKeys(tmp_path).create("acme", now_s=1)
    assert found(known, made.text) == made.key.id
    ApiKeys(tmp_path).revoke(made.key.id, now_s=2)
    assert not known.is_current()
    assert found(known, made.text) == "api_key_revoked"


def test_what_was_read_before_a_change_is_not_current_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation may come between the look at the file's state and the reading of its keys."""
    keys = ApiKeys(tmp_path)
    made = keys.create("acme", now_s=1)
    known, state = ApiKeyCache(keys), keys.state

    def state_then_revoked() -> bytes:
        as_of = state()
        keys.revoke(made.key.id, now_s=2)
        return as_of

    monkeypatch.setattr(keys, "state", state_then_revoked)
    known.read()
    monkeypatch.undo()
    assert not known.is_current()


def test_unknown_keys_never_read_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger who guesses costs a dictionary's look-up, not a database's."""
    keys = ApiKeys(tmp_path)
    keys.create("acme", now_s=1)
    known = ApiKeyCache(keys)
    n_read = 0
    table = keys.table

    def counted() -> KeyTable:
        nonlocal n_read
        n_read += 1
        return table()

    monkeypatch.setattr(keys, "table", counted)
    for _ in range(100):
        assert found(known, UNKNOWN) == "invalid_api_key"
    assert n_read == 1


def test_only_an_unissued_key_counts_as_a_guess(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    known = ApiKeyCache(keys)
    made = keys.create("acme", now_s=1)
    keys.revoke(made.key.id, now_s=2)
    known.read()
    with pytest.raises(AuthError) as revoked:
        known.find(made.text)
    assert not isinstance(revoked.value, UnknownCredential)
    with pytest.raises(UnknownCredential):
        known.find(UNKNOWN)


def test_a_server_is_new_until_its_first_key(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    known = ApiKeyCache(keys)
    known.read()
    assert not known.any_made()
    keys.create("acme", now_s=1)
    known.read()
    assert known.any_made()
