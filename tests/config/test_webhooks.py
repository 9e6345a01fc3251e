"""`[webhooks.NAME]`: read, refused when wrong, and never shown where secrets are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import effective, load
from voicepipe.errors import ConfigError

SECRET = "whsec_" + "A" * 32
OTHER = "whsec_" + "B" * 32
HUSH = "https://crm.example/hook?key=hush-1"


def loaded(tmp_path: Path, text: str, **environ: str):  # type: ignore[no-untyped-def]
    file = tmp_path / "voicepipe.toml"
    file.write_text(f"[webhooks.crm]\n{text}")
    return load(str(file), environ={"HOME": str(tmp_path), **environ})


def test_webhook_gets_all_events_by_default(tmp_path: Path) -> None:
    settings = loaded(tmp_path, f'url = "{HUSH}"\nsecret = "{SECRET}"')
    crm = settings.webhooks["crm"].webhook("crm")
    assert (crm.name, crm.url, crm.secrets, crm.project) == ("crm", HUSH, (b"\0" * 24,), "")
    turns_and_calls = ("session.started", "turn.completed", "turn.over_budget", "tool.called", "session.ended")
    assert crm.kinds == (*turns_and_calls, "bench.drifted")
    settings = loaded(tmp_path, f'url = "{HUSH}"\nsecret = "{SECRET}"\nevents = ["session.ended"]\nproject = "shop"')
    crm = settings.webhooks["crm"].webhook("crm")
    assert crm.subscribes_to("session.ended", "shop")
    assert not crm.subscribes_to("turn.completed", "shop")
    assert not crm.subscribes_to("session.ended", "bank")


def test_the_secret_may_lie_elsewhere(tmp_path: Path) -> None:
    """In a variable of one's own choice, in a setting's own one, or in a file, where several all sign."""
    (tmp_path / "secret").write_text(f"{SECRET}\n{OTHER}\n")
    for line, environ in (
        ('secret_env = "CRM"', {"CRM": SECRET}),
        ("timeout_ms = 100", {"VOICEPIPE_WEBHOOKS__CRM__SECRET": SECRET}),
    ):
        settings = loaded(tmp_path, f'url = "{HUSH}"\n{line}', **environ)
        assert settings.webhooks["crm"].webhook("crm").secrets == (b"\0" * 24,)
    settings = loaded(tmp_path, f'url = "{HUSH}"\nsecret_file = "{tmp_path / "secret"}"')
    assert len(settings.webhooks["crm"].webhook("crm").secrets) == 2
    assert settings.origins["webhooks.crm.secret"] == str(tmp_path / "secret")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'secret = "{SECRET}"', r"webhooks\.crm\.url: expected an address"),
        (f'url = "ftp://x/"\nsecret = "{SECRET}"', r"webhooks\.crm\.url: expected an address"),
        ('url = "http://x/"', r"webhooks\.crm\.secret: expected whsec_ and 24 to 64 bytes in base64, got nothing"),
        ('url = "http://x/"\nsecret = "hush-1"', r"webhooks\.crm\.secret: .*got something else"),
        ('url = "http://x/"\nsecret = "whsec_AAAA"', r"webhooks\.crm\.secret: .*got something else"),
        ('url = "http://x/"\nsecret_env = "NONE"', r"webhooks\.crm\.secret_env: expected a secret .* variable NONE"),
        ('url = "http://x/"\nsecret_file = "/nowhere"', r"webhooks\.crm\.secret_file: expected a file"),
        (f'url = "http://x/"\nsecret = "{SECRET}"\nevents = ["turn"]', r"webhooks\.crm\.events: expected some of"),
        (f'url = "http://x/"\nsecret = "{SECRET}"\nevents = []', r"webhooks\.crm\.events: .* got none"),
        ('urls = "http://x/"', r"webhooks\.crm\.urls: unknown setting .* did you mean webhooks\.crm\.url"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        loaded(tmp_path, text)
    assert "hush" not in str(refused.value)


def test_neither_secret_nor_address_is_displayed(tmp_path: Path) -> None:
    """Many receivers' addresses hold a key."""
    settings = loaded(tmp_path, f'url = "{HUSH}"\nsecret = "{SECRET}"')
    displayed = repr(settings) + str(effective(settings)) + repr(settings.webhooks["crm"].webhook("crm"))
    assert "webhooks.crm.timeout_ms" in displayed
    assert "hush" not in displayed
    assert SECRET not in displayed
