"""A phone line of the settings, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from voicepipe.phone.carrier import Carrier, CarrierAccount


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneLine:
    """A `[phone.NAME]`: numbers of one account at a carrier, answered by an agent."""

    name: str
    carrier: Carrier
    account: CarrierAccount
    agent: str
    """The agent that answers; empty: the one whose `chosen_by` fits, or the default agent."""

    project: str
    public_url: str
    """The server's address as the carrier calls it, without a slash at its end; empty: as the request has it."""

    hangs_up_on_voicemail: bool
    """Whether a call that a machine answers ends at once."""

    transfer_to: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name -> the number to which the agent may transfer a call."""
