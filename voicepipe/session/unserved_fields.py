"""Name the fields of a client's request that are accepted and have no effect, each once in a session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from voicepipe.protocol.inbound import PartlyServed, SessionUpdate, Unreadable
from voicepipe.protocol.published_fields import not_served

NOT_SERVED = "unsupported_parameter"
"""The code of these errors. The session goes on, and the rest of the request is in force."""

_POSITION: Final = re.compile(r"\[\d+\]")
"""Of an entry in a list: the same field of two entries is named once."""


class UnservedFields:
    """The fields that were named so far in one session: clients send the same settings with every update."""

    def __init__(self, is_another_agent: Callable[[str], bool], report: Callable[[str], None] | None) -> None:
        """Begin with none.

        Args:
            is_another_agent: returns whether a model's name is that of an agent other than the session's.
            report: gets the fields in place of the client; None: the client gets an error for each.
        """
        self._is_another_agent, self._report = is_another_agent, report
        self._named: set[str] = set()  # bounded by the fields that are published

    def notices(self, request: SessionUpdate, model: str) -> Iterator[Unreadable]:
        """Yield an error for each field of an accepted update that was not named before.

        Args:
            model: the name of the session's agent, as the client wrote it.
        """
        fields = dict(not_served(request.update))
        requested = request.update.get("model")
        if isinstance(requested, str) and self._is_another_agent(requested):
            fields["session.model"] = f"{model!r} goes on with the session"
        yield from self._named_once(fields.items(), request.event_id, "update")

    def notices_of_response(self, served: PartlyServed) -> Iterator[Unreadable]:
        """Yield an error for each field of a request for a reply that was not named before."""
        yield from self._named_once(served.fields, served.request.event_id, "request")

    def _named_once(self, fields: Iterable[tuple[str, str]], event_id: str | None, what: str) -> Iterator[Unreadable]:
        for field, why in fields:
            if (named := _POSITION.sub("", field)) not in self._named:
                self._named.add(named)
                if self._report is not None:
                    self._report(named)
                    continue
                text = f"{field}: accepted, and not in force: {why}. The rest of the {what} is."
                yield Unreadable(event_id, NOT_SERVED, text, field)
