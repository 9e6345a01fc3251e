"""Build the functions that agents may call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from voicepipe.agents.http_tool import HttpTool
from voicepipe.config.settings import Settings
from voicepipe.phone.calls import PhoneCalls
from voicepipe.phone.send_dtmf import SendDtmf
from voicepipe.phone.transfer_call import TransferCall
from voicepipe.ports.server_tool import END_CALL, SEND_DTMF, TRANSFER_CALL, ServerTool
from voicepipe.session.end_call import EndCall


class Tools:
    """Makes the tools that agents may name."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self.phone_calls = PhoneCalls()
        """The phone calls that the tools are for."""

    def of(self, settings: Settings) -> Mapping[str, ServerTool]:
        """Return the tools of the settings and the built-in ones, by name."""
        over_http = {name: HttpTool(tool.options(name), self._http) for name, tool in settings.tools.items()}
        names = {name for line in settings.phone.values() for name, _ in line.transfer_to}
        transfer_call = TransferCall(self.phone_calls, names)
        send_dtmf = SendDtmf(self.phone_calls)
        return {END_CALL: EndCall(), TRANSFER_CALL: transfer_call, SEND_DTMF: send_dtmf, **over_http}


@asynccontextmanager
async def open_tools() -> AsyncIterator[Tools]:
    """Yield the maker of tools, with one pool of connections for all of them."""
    # Each call has a time limit of its own.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        yield Tools(http)
