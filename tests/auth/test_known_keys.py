"""A key that is remembered is one that a look into the file would find."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.auth import known_keys
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.known_keys import KnownKeys


def learned(keys: ApiKeys, known: KnownKeys, project: str = "acme") -> str:
    text = keys.create(project, now_s=1).text
    known.learn(text, keys.find(text), as_of=known.as_of())
    return text


def test_a_key_is_recalled_by_its_whole_text_only(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    known = KnownKeys(keys)
    assert known.recall("vp_acme_x") is None
    text = learned(keys, known)
    assert known.recall(text) == keys.find(text)
    assert known.recall(text[:-1]) is None


def test_a_revoked_key_is_forgotten_at_once_whoever_revoked_it(tmp_path: Path) -> None:
    keys = ApiKeys(tmp_path)
    known = KnownKeys(keys)
    text = learned(keys, known)
    ApiKeys(tmp_path).revoke(keys.find(text).id, now_s=2)
    assert known.recall(text) is None


def test_what_was_found_before_a_change_is_not_learned_for_after_it(tmp_path: Path) -> None:
    """The look into the file and the learning are two steps; a revocation may come between."""
    keys = ApiKeys(tmp_path)
    known = KnownKeys(keys)
    text = keys.create("acme", now_s=1).text
    as_of, found = known.as_of(), keys.find(text)
    keys.revoke(found.id, now_s=2)
    known.learn(text, found, as_of=as_of)
    assert known.recall(text) is None


def test_the_oldest_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_keys, "MOST_KEYS", 2)
    keys = ApiKeys(tmp_path)
    known = KnownKeys(keys)
    texts = [keys.create("acme", now_s=1).text for _ in range(3)]
    for text in texts:
        known.learn(text, keys.find(text), as_of=known.as_of())
    assert [known.recall(text) is not None for text in texts] == [False, True, True]
