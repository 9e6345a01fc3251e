"""`[phone.NAME]`: phone numbers at a carrier, answered by an agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Final, Literal, Protocol

from voicepipe.config.convert import SECRET, TABLE, WEB_ADDRESS
from voicepipe.config.sources import Leaves, key_in
from voicepipe.config.tools import Read
from voicepipe.errors import ConfigError
from voicepipe.phone.carrier import Carrier, CarrierAccount, CarrierName
from voicepipe.phone.options import PhoneLine
from voicepipe.ports.server_tool import SEND_DTMF, TRANSFER_CALL
from voicepipe.protocol.prompt import listed
from voicepipe.values import replace

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{1,14}")
"""A number in the form of E.164, with its `+`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneEntry:
    """A `[phone.NAME]`: the numbers of a carrier's account whose webhook is `/v1/phone/NAME`."""

    carrier: CarrierName = "twilio"
    """The carrier."""

    secret: Annotated[str, SECRET] = field(default="", repr=False)
    """What verifies the webhook's signature. Twilio and Plivo: the auth token of the account; Telnyx: its
    public key; Vonage: its signature secret. Set it in the environment instead, with `secret_env`."""

    secret_env: str = ""
    """The environment variable that holds the secret; if it is named but empty or unset, the server does not start. The
    same name with `_FILE` behind it names a file that holds the secret instead."""

    api_key: Annotated[str, SECRET] = field(default="", repr=False)
    """The key of the carrier's API, where it is not `secret`. Telnyx: a key of its API; Vonage: the application's
    private key in PEM, for calls that the server makes. Set it in the environment instead, with `api_key_env`."""

    api_key_env: str = ""
    """The environment variable that holds the API key, or with `_FILE` behind its name the file; as `secret_env`."""

    agent: str = ""
    """The agent that answers. Empty: the first whose `chosen_by` fits `phone_line`, `user_number`, `line_number`
    and `answered_by`, or the default agent."""

    project: str = "default"
    """The project that the calls belong to."""

    public_url: str = ""
    """The server's address as the carrier calls it, such as `https://voice.example.com`. Telnyx and Vonage need it,
    since they do not sign it. Empty: as the request has it, which is right without a proxy, and behind one that
    `server.trusted_proxies` names."""

    account: str = ""
    """The ID of the account at the carrier, for calls that the server makes. Twilio: the account SID; Telnyx: the ID of
    the Voice API application; Vonage: the application ID; Plivo: the auth ID."""

    number: str = ""
    """The number from which the server calls, with `+`: one of the account's. Empty: the server makes no calls."""

    api_url: Annotated[str, WEB_ADDRESS] = ""
    """The address of the carrier's API, for another region. Empty: the usual one."""

    voicemail: Literal["hang_up", "talk"] = "hang_up"
    """What happens to a call of the server that a machine answers: it ends, or the agent talks to the machine."""

    transfer_to: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """Where the agent may transfer a call to, with the tool `transfer_call`: names, and numbers with `+`."""

    @property
    def carrier_account(self) -> CarrierAccount:
        """Return what the carrier needs of the line."""
        return CarrierAccount(
            account_id=self.account,
            secret=self.secret,
            api_key=self.api_key,
            api_url=self.api_url.rstrip("/"),
            number=self.number,
        )

    def line(self, name: str) -> PhoneLine:
        """Return the line as the server needs it."""
        return PhoneLine(
            name=name,
            carrier=_carrier(self.carrier),
            account=self.carrier_account,
            agent=self.agent,
            project=self.project,
            public_url=self.public_url.rstrip("/"),
            hangs_up_on_voicemail=self.voicemail == "hang_up",
            transfer_to=MappingProxyType(dict(self.transfer_to)),
        )


class _HasTools(Protocol):
    @property
    def tools(self) -> tuple[str, ...]: ...


def read_phone(leaves: Leaves, read: Read, env: Mapping[str, str], origins: dict[str, str]) -> dict[str, PhoneEntry]:
    """Return the phone lines of the settings.

    Raises:
        ConfigError: naming the key of a missing or wrong value.
    """
    names = sorted({path[1] for path in leaves if path[0] == "phone" and len(path) > 1})
    return {name: _checked(read(PhoneEntry(), ("phone", name), leaves), name, env, origins) for name in names}


def _carrier(name: CarrierName) -> Carrier:
    # Loads numpy, which no command needs that reads settings without a phone line.
    from voicepipe.phone.carriers import CARRIERS

    return CARRIERS[name]


def _checked(entry: PhoneEntry, name: str, env: Mapping[str, str], origins: dict[str, str]) -> PhoneEntry:
    at = f"phone.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{at}: expected a name of letters, digits, _ and -, at most 64, got {name!r}")
    entry = _from_variable(entry, "secret", at, env, origins)
    entry = _from_variable(entry, "api_key", at, env, origins)
    if not entry.secret:
        raise ConfigError(f"{at}.secret: expected the carrier's secret, got none: no webhook could be verified")
    if entry.public_url and not entry.public_url.startswith(("http://", "https://")):
        raise ConfigError(f"{at}.public_url: expected an address that begins with http(s)://, got another one")
    if entry.number and not (_NUMBER.fullmatch(entry.number) and entry.account):
        raise ConfigError(f"{at}.number: expected a number such as +4930123456 and an account, got {entry.number!r}")
    try:
        _carrier(entry.carrier).check(entry.carrier_account)
    except ValueError as why:
        raise ConfigError(f"{at}.{why}") from why
    if not entry.public_url and not _carrier(entry.carrier).signs_address:
        raise ConfigError(
            f"{at}.public_url: expected the server's address, got none: {entry.carrier} does not sign the address of a "
            "request"
        )
    for to, number in entry.transfer_to:
        if not _NUMBER.fullmatch(number):
            raise ConfigError(f"{at}.transfer_to.{to}: expected a number such as +4930123456, got {number!r}")
    return entry


def _from_variable(
    entry: PhoneEntry, name: Literal["secret", "api_key"], at: str, env: Mapping[str, str], origins: dict[str, str]
) -> PhoneEntry:
    """Return the entry with a secret from the environment, if a variable is named and the secret is not set."""
    variable = str(getattr(entry, f"{name}_env"))
    if not variable or getattr(entry, name):
        return entry
    if not (value := key_in(env, variable)):
        raise ConfigError(f"{at}.{name}_env: expected a secret in the variable {variable}, got none")
    origins[f"{at}.{name}"] = f"${variable}"
    return replace(entry, secret=value) if name == "secret" else replace(entry, api_key=value)


def check_phone(agents: Mapping[str, _HasTools], lines: Mapping[str, PhoneEntry]) -> None:
    """Check that lines name agents that exist, and that a transfer has somewhere to go.

    Raises:
        ConfigError: naming the key of the wrong value.
    """
    for name, line in lines.items():
        if line.agent and line.agent not in agents:
            raise ConfigError(
                f"phone.{name}.agent: expected the name of an agent ({listed(agents)}), got {line.agent!r}"
            )
    may_transfer = any(line.transfer_to for line in lines.values())
    for agent, options in agents.items():
        if TRANSFER_CALL in options.tools and not may_transfer:
            raise ConfigError(f"agents.{agent}.tools: {TRANSFER_CALL!r} needs a [phone.NAME.transfer_to], got none")
        if SEND_DTMF in options.tools and not lines:
            raise ConfigError(f"agents.{agent}.tools: {SEND_DTMF!r} needs a [phone.NAME], got none")
