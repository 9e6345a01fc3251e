"""API keys: shown once, stored as a hash, each of one project."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.sqlite import FILE_NAME
from voicepipe.errors import AuthError, ConfigError


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeys:
    return ApiKeys(tmp_path)


def test_a_key_is_found_by_its_text(keys: ApiKeys) -> None:
    """With its project and scopes, and its text is legal wherever a key may stand."""
    made = keys.create("my-shop", now_s=5, name="backend", scopes=["turns", "realtime"])
    assert re.fullmatch(r"vp_my-shop_[A-Za-z0-9]{51}", made.text)
    assert keys.find(made.text) == made.key
    assert (made.key.project, made.key.scopes, made.key.name) == ("my-shop", ("realtime", "turns"), "backend")


def test_keys_differ(keys: ApiKeys) -> None:
    """Random, all of them."""
    assert len({keys.create("shop", now_s=0).text for _ in range(20)}) == 20


def test_a_key_is_stored_hashed(keys: ApiKeys, tmp_path: Path) -> None:
    """A thief of the file has no key."""
    text = keys.create("shop", now_s=0).text
    secret = text.rpartition("_")[2][8:]
    assert secret.encode() not in (tmp_path / FILE_NAME).read_bytes()


def test_a_new_key_hides_its_text_in_repr(keys: ApiKeys) -> None:
    """It is printed on purpose or not at all."""
    made = keys.create("shop", now_s=0)
    assert made.text not in repr(made)


def test_a_key_with_a_wrong_secret_is_unknown(keys: ApiKeys) -> None:
    """The right id isn't enough, nor another key's secret, nor another project's name."""
    first, second = keys.create("shop", now_s=0).text, keys.create("shop", now_s=0).text
    crossed = first[: len("vp_shop_") + 8] + second[len("vp_shop_") + 8 :]
    for wrong in (crossed, first.replace("vp_shop_", "vp_rival_"), "vp_shop_" + "A" * 51):
        with pytest.raises(AuthError, match=r"^Incorrect API key provided\. This server doesn't have it") as refused:
            keys.find(wrong)
        assert (refused.value.code, refused.value.status) == ("invalid_api_key", 401)


@pytest.mark.parametrize("text", ["vp_", "vp_shop_short", "vp_SHOP_" + "A" * 51, "vp_shop_" + "A" * 50 + "\n", ""])
def test_a_malformed_key_says_so(text: str, keys: ApiKeys) -> None:
    """A key that was cut while copying is the usual mistake."""
    with pytest.raises(AuthError, match="copied whole"):
        keys.find(text)


def test_a_revoked_key_stops_at_once(keys: ApiKeys, tmp_path: Path) -> None:
    """This holds in every process, since each looks the key up; and its holder gets the reason."""
    made = keys.create("shop", now_s=0)
    assert ApiKeys(tmp_path).revoke(made.key.id, now_s=7).revoked_at_s == 7
    with pytest.raises(AuthError, match=f"{made.key.id} was revoked") as refused:
        keys.find(made.text)
    assert refused.value.code == "api_key_revoked"


def test_revoking_twice_keeps_the_first_time(keys: ApiKeys) -> None:
    """And an id that isn't there is said."""
    made = keys.create("shop", now_s=0)
    keys.revoke(made.key.id, now_s=7)
    assert keys.revoke(made.key.id, now_s=9).revoked_at_s == 7
    with pytest.raises(ConfigError, match="'nobody'"):
        keys.revoke("nobody", now_s=9)


def test_keys_are_listed_by_project(keys: ApiKeys) -> None:
    """Oldest first, revoked ones too, none of another project."""
    first = keys.create("shop", now_s=1).key
    keys.create("rival", now_s=2)
    second = keys.create("shop", now_s=3).key
    revoked = keys.revoke(first.id, now_s=4)
    assert keys.list("shop") == (revoked, second)
    assert len(keys.list()) == 3


def test_a_store_is_open_until_its_first_key_and_never_again(keys: ApiKeys) -> None:
    """An operator who revokes the last key wants no access at all."""
    assert not keys.any_made()
    made = keys.create("shop", now_s=0)
    assert keys.any_made()
    keys.revoke(made.key.id, now_s=1)
    assert keys.any_made()


@pytest.mark.parametrize("project", ["", "Shop", "my_shop", "-shop", "shop-", "a" * 33, "käse"])
def test_a_project_name_that_can_not_stand_in_a_key_is_refused(project: str, keys: ApiKeys) -> None:
    """With what was expected."""
    with pytest.raises(ConfigError, match="expected 1 to 32 of a-z, 0-9 and -"):
        keys.create(project, now_s=0)


@pytest.mark.parametrize("scopes", [[], ["realtime", "root"]])
def test_unknown_scopes_are_refused(scopes: list[str], keys: ApiKeys) -> None:
    """And so are none: such a key could do nothing."""
    with pytest.raises(ConfigError, match="expected some of realtime, tokens"):
        keys.create("shop", now_s=0, scopes=scopes)


def test_a_file_from_a_newer_voicepipe_is_refused(keys: ApiKeys, tmp_path: Path) -> None:
    """Both versions are named."""
    keys.create("shop", now_s=0)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="has version 99, made by a newer voicepipe; this one reads 1"):
        keys.list()


def test_keys_of_another_node_are_added(keys: ApiKeys, tmp_path: Path) -> None:
    """They work as they do there; a file that has them all is not written."""
    other = ApiKeys(tmp_path / "other")
    new = other.create("shop", now_s=5, name="backend", scopes=["turns"])
    keys.create("shop", now_s=1)
    assert keys.merge(other.rows()) == 1
    assert keys.find(new.text) == new.key
    before = keys.state()
    assert keys.merge(other.rows()) == 0
    assert keys.state() == before


def test_a_key_that_is_revoked_anywhere_is_revoked(keys: ApiKeys, tmp_path: Path) -> None:
    other = ApiKeys(tmp_path / "other")
    new = other.create("shop", now_s=5)
    keys.merge(other.rows())
    other.revoke(new.key.id, now_s=7)
    valid = keys.rows()
    assert keys.merge(other.rows()) == 1
    assert other.merge(valid) == 0, "nothing is taken back"
    for each in (keys, other):
        with pytest.raises(AuthError, match="revoked"):
            each.find(new.text)
    assert keys.list()[0].revoked_at_s == 7
