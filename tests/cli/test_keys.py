"""Keys by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "data"


def test_key_is_created_printed_once_listed_and_revoked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data-dir", str(folder)]
    assert main(["keys", "create", "--project", "acme", "--name", "their backend", "--scope", "turns", *where]) == 0
    text = capsys.readouterr().out.strip()
    key = ApiKeys(folder).find(text)
    assert (key.project, key.name, key.scopes) == ("acme", "their backend", ("turns",))
    assert main(["keys", "list", *where]) == 0
    listed = capsys.readouterr().out
    assert key.id in listed
    assert "works" in listed
    assert text not in listed
    assert main(["keys", "revoke", key.id, *where]) == 0
    assert "revoked" in capsys.readouterr().out
    (revoked,) = ApiKeys(folder).list()
    assert revoked.revoked_at_s is not None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["create", "--project", "No!"], "project: expected"),
        (["create", "--scope", "everything"], "scopes: expected some of"),
        (["revoke", "nobody"], "no API key has the id 'nobody'"),
    ],
)
def test_what_can_not_be_is_refused_in_a_line(
    arguments: list[str], why: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", *arguments, "--data-dir", str(folder)]) == 2
    assert why in capsys.readouterr().err


def test_a_folder_that_can_not_be_made_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write_text("a file")
    assert main(["keys", "list", "--data-dir", str(folder / "below")]) == 2
    assert capsys.readouterr().err.startswith(
        f"voicepipe: server.data_dir: expected a folder that can be made, got {folder}"
    )
