"""`[phone.NAME]`: phone numbers at a carrier, answered by an agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Final, Literal, Protocol

from voicepipe.config.convert import SECRET, TABLE, WEB_ADDRESS
from voicepipe.config.sources import Leaves, key_in
from voicepipe.config.tools import Read
from voicepipe.errors import ConfigError
from voicepipe.phone.carriers import CARRIERS, CarrierName
from voicepipe.phone.options import PhoneLine
from voicepipe.ports.server_tool import TRANSFER_CALL
from voicepipe.protocol.prompt import listed

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{1,14}")
"""A number in the form of E.164, with its `+`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneEntry:
    """A `[phone.NAME]`: the numbers of a carrier's account whose webhook is `/v1/phone/NAME`."""

    carrier: CarrierName = "twilio"
    """The carrier."""

    secret: Annotated[str, SECRET] = field(default="", repr=False)
    """What verifies the webhook's signature: the auth token of the account. Set it in the environment instead, with
    `secret_env`."""

    secret_env: str = ""
    """The environment variable that holds the secret; if it is named but empty or unset, the server does not start. The
    same name with `_FILE` behind it names a file that holds the secret instead."""

    agent: str = ""
    """The agent that answers. Empty: the first whose `chosen_by` fits `phone_line`, `user_number`, `line_number`
    and `answered_by`, or the default agent."""

    project: str = "default"
    """The project that the calls belong to."""

    public_url: str = ""
    """The server's address as the carrier calls it, such as `https://voice.example.com`. Empty: as the request has it,
    which is right without a proxy, and behind one that `server.trusted_proxies` names."""

    account: str = ""
    """The ID of the account at the carrier (Twilio: the account SID), for calls that the server makes."""

    number: str = ""
    """The number from which the server calls, with `+`: one of the account's. Empty: the server makes no calls."""

    api_url: Annotated[str, WEB_ADDRESS] = ""
    """The address of the carrier's API, for another region. Empty: the usual one."""

    voicemail: Literal["hang_up", "talk"] = "hang_up"
    """What happens to a call of the server that a machine answers: it ends, or the agent talks to the machine."""

    transfer_to: Annotated[tuple[tuple[str, str], ...], TABLE] = ()
    """Where the agent may transfer a call to, with the tool `transfer_call`: names, and numbers with `+`."""

    def line(self, name: str) -> PhoneLine:
        """Return the line as the server needs it."""
        return PhoneLine(
            name=name,
            carrier=CARRIERS[self.carrier],
            secret=self.secret,
            agent=self.agent,
            project=self.project,
            public_url=self.public_url.rstrip("/"),
            account=self.account,
            number=self.number,
            api_url=self.api_url.rstrip("/"),
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


def _checked(entry: PhoneEntry, name: str, env: Mapping[str, str], origins: dict[str, str]) -> PhoneEntry:
    at = f"phone.{name}"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{at}: expected a name of letters, digits, _ and -, at most 64, got {name!r}")
    if entry.secret_env and not entry.secret:
        secret = key_in(env, entry.secret_env)
        if not secret:
            raise ConfigError(f"{at}.secret_env: expected a secret in the variable {entry.secret_env}, got none")
        entry, origins[f"{at}.secret"] = replace(entry, secret=secret), f"${entry.secret_env}"
    if not entry.secret:
        raise ConfigError(f"{at}.secret: expected the carrier's secret, got none: no webhook could be verified")
    if entry.public_url and not entry.public_url.startswith(("http://", "https://")):
        raise ConfigError(f"{at}.public_url: expected an address that begins with http(s)://, got another one")
    if entry.number and not (_NUMBER.fullmatch(entry.number) and entry.account):
        raise ConfigError(f"{at}.number: expected a number such as +4930123456 and an account, got {entry.number!r}")
    for to, number in entry.transfer_to:
        if not _NUMBER.fullmatch(number):
            raise ConfigError(f"{at}.transfer_to.{to}: expected a number such as +4930123456, got {number!r}")
    return entry


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
    if any(line.transfer_to for line in lines.values()):
        return
    for agent, its in agents.items():
        if TRANSFER_CALL in its.tools:
            raise ConfigError(f"agents.{agent}.tools: {TRANSFER_CALL!r} needs a [phone.NAME.transfer_to], got none")
