"""`[phone.NAME]`: read, refused when wrong, and its secret never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicepipe.config import effective, load
from voicepipe.config.settings import Settings
from voicepipe.errors import ConfigError
from voicepipe.phone.twilio import Twilio

SECRET = "hush-1"


def loaded(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "voicepipe.toml"
    file.write_text(text)
    return load(str(file), environ={"HOME": str(tmp_path), **environ})


def test_a_line_has_its_carrier_and_its_numbers(tmp_path: Path) -> None:
    text = f'[phone.main]\nsecret = "{SECRET}"\npublic_url = "https://voice.example/"\n'
    settings = loaded(tmp_path, f'{text}[phone.main.transfer_to]\nsales = "+4930123456"')
    line = settings.phone["main"].line("main")
    assert isinstance(line.carrier, Twilio)
    assert (line.name, line.account.secret, line.agent, line.project) == ("main", SECRET, "", "default")
    assert line.public_url == "https://voice.example"
    assert dict(line.transfer_to) == {"sales": "+4930123456"}
    rows = {row.key: row for row in effective(settings)}
    assert rows["phone.main.carrier"].value == '"twilio"'
    assert SECRET not in str(rows) + repr(settings)


def test_the_secret_may_come_from_a_variable(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[phone.main]\nsecret_env = "TOKEN"', TOKEN=SECRET)
    assert settings.phone["main"].secret == SECRET
    assert settings.origins["phone.main.secret"] == "$TOKEN"


def test_the_api_key_may_come_from_a_file_and_is_never_displayed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush-2\n")
    text = '[phone.main]\nsecret = "x"\napi_key_env = "KEY"'
    settings = loaded(tmp_path, text, KEY_FILE=str(tmp_path / "key"))
    assert settings.phone["main"].line("main").account.api_key == "hush-2"
    assert "hush-2" not in str(effective(settings)) + repr(settings)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[phone.main]\nagent = 'default'", "phone.main.secret: expected the carrier's secret"),
        ("[phone.main]\nsecret_env = 'TOKEN'", "phone.main.secret_env: expected a secret in the variable TOKEN"),
        ("[phone.'a b']\nsecret = 'x'", "phone.a b: expected a name of letters"),
        ("[phone.main]\nsecret = 'x'\ncarrier = 'other'", "phone.main.carrier: expected"),
        ("[phone.main]\nsecret = 'x'\nagent = 'other'", "phone.main.agent: expected the name of an agent"),
        ("[phone.main]\nsecret = 'x'\npublic_url = 'voice'", "phone.main.public_url: expected an address"),
        ("[phone.main]\nsecret = 'x'\ntransfer_to.a = '0301'", "phone.main.transfer_to.a: expected a number such as"),
        ("[phone.main]\nsecret = 'x'\nnumber = '+4930'", "phone.main.number: expected a number such as"),
        ("[phone.main]\nsecret = 'x'\ncarrier = 'telnyx'", "phone.main.secret: expected the account's public key"),
        (
            "[phone.main]\nsecret = 'x'\ncarrier = 'vonage'",
            "phone.main.public_url: expected the server's address, got none: vonage does not sign",
        ),
        (
            "[phone.main]\nsecret = 'x'\napi_key_env = 'KEY'",
            "phone.main.api_key_env: expected a secret",
        ),
        ("[agents.default]\ntools = ['send_dtmf']", "agents.default.tools: 'send_dtmf' needs a [phone.NAME]"),
        ("[agents.default]\ntools = ['transfer_call']", "agents.default.tools: 'transfer_call' needs a"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert str(refused.value).startswith(why)
