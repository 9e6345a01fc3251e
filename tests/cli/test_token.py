"""Client secrets from the shell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.stores import open_sqlite
from voicepipe.auth.claims import Claims, Limits, Lock
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.tokens import verify
from voicepipe.cli import main
from voicepipe.clock import unix_s
from voicepipe.errors import AuthError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder, and no settings from elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "data"


def minted(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, Claims]:
    assert main(["token", "--data-dir", str(folder), *arguments]) == 0
    captured = capsys.readouterr()
    value = captured.out.strip()
    claims = verify(value, KeyStore(folder).keyring(unix_s()), now_s=unix_s())
    assert claims.token_id in captured.err
    return value, claims


def test_a_secret_from_the_shell_is_as_one_from_the_endpoint(folder: Path, capsys: Any) -> None:
    _, claims = minted(
        folder,
        capsys,
        *("--project", "acme", "--agent", "default", "--subject", "anna", "--identity", "Anna", "--seconds", "60"),
        *("--origin", "https://a.example", "--origin", "https://b.example", "--max-sessions", "1", "--turns", "5"),
        *("--session-seconds", "30", "--spend-usd", "0.5", "--lock", "audio.output.voice", "--hide", "instructions"),
        *("--session", '{"max_output_tokens": 100}'),
    )
    assert (claims.project, claims.subject, claims.identity) == ("acme", "anna", "Anna")
    assert claims.expires_at_s - claims.issued_at_s == 60
    assert claims.limits == Limits(
        max_sessions=1,
        session_seconds=30,
        turns=5,
        spend_usd=0.5,
        origins=("https://a.example", "https://b.example"),
        agents=("default",),
    )
    assert claims.locks == (Lock("audio.output.voice"), Lock("instructions", hidden=True))
    assert claims.session == {"model": "default", "max_output_tokens": 100}


def test_a_plain_one_talks_and_reads_its_own_turns(folder: Path, capsys: Any) -> None:
    _, claims = minted(folder, capsys)
    assert (claims.project, claims.scopes, claims.limits) == ("default", ("realtime", "turns"), Limits())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seconds", "5"], "--seconds: "),
        (["--turns", "0"], "--turns: "),
        (["--agent", "nobody"], "--agent: Expected the name of an agent, got 'nobody'"),
        (["--lock", "instuctions"], "--lock, --hide: Expected the dotted path"),
        (["--session", "{"], "--session: expected a JSON object"),
        (["--session", '{"type": "video"}'], "--session: "),
        (["--scope", "operate"], "--scope: expected scopes among realtime, turns, chat"),
    ],
)
def test_what_can_not_be_is_refused_in_words_of_the_shell(
    arguments: list[str], words: str, folder: Path, capsys: Any
) -> None:
    assert main(["token", *arguments, "--data-dir", str(folder)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("by", [["--subject", "anna"], []])
def test_a_secret_is_taken_back_from_the_shell(folder: Path, capsys: Any, by: list[str]) -> None:
    _, claims = minted(folder, capsys, "--project", "acme", "--subject", "anna")
    named = by or [claims.token_id]
    assert not revoked(folder, claims)
    assert main(["revoke", *named, "--project", "other", "--data-dir", str(folder)]) == 0
    assert not revoked(folder, claims)
    assert main(["revoke", *named, "--project", "acme", "--data-dir", str(folder)]) == 0
    assert revoked(folder, claims)


def revoked(folder: Path, claims: Claims) -> bool:
    async def is_active() -> bool:
        async with open_sqlite(folder) as cluster:
            return await cluster.is_revoked(claims)

    return asyncio.run(is_active())


@pytest.mark.parametrize("arguments", [[], ["abc", "--subject", "anna"], ["ek_a.b.c"]])
def test_what_to_take_back_must_be_named_once_and_by_its_id(arguments: list[str], folder: Path, capsys: Any) -> None:
    assert main(["revoke", *arguments, "--data-dir", str(folder)]) == 2
    assert "revoke: expected the id" in capsys.readouterr().err


def test_signing_secret_is_rotated_and_the_old_one_removed(folder: Path, capsys: Any) -> None:
    where = ["--data-dir", str(folder)]
    before, _ = minted(folder, capsys)
    old = KeyStore(folder).keyring(unix_s()).signer.kid
    assert main(["keys", "rotate", *where]) == 0
    new = capsys.readouterr().out.strip()
    ring = KeyStore(folder).keyring(unix_s())
    assert (ring.signer.kid, new != old) == (new, True)
    verify(before, ring, now_s=unix_s())
    assert main(["keys", "remove", old, *where]) == 0
    with pytest.raises(AuthError) as refused:
        verify(before, KeyStore(folder).keyring(unix_s()), now_s=unix_s())
    assert refused.value.code == "unknown_key"
    assert main(["keys", "remove", new, *where]) == 2
    assert "rotate first" in capsys.readouterr().err


def test_revoking_the_last_key_says_what_that_means(folder: Path, capsys: Any) -> None:
    where = ["--data-dir", str(folder)]
    main(["keys", "create", *where])
    id_ = capsys.readouterr().out.strip().removeprefix("vp_default_")[:8]
    assert main(["keys", "revoke", id_, *where]) == 0
    assert "no client can connect until 'voicepipe keys create'" in capsys.readouterr().err
