"""Who is at the door: the auth room's answer to an aiohttp request."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from aiohttp import web

from voicepipe.auth.apikeys import ApiKey, ApiKeys
from voicepipe.auth.attempts import FailedAttempts
from voicepipe.auth.claims import Claims
from voicepipe.auth.credentials import Presented, find_credential, missing_credential
from voicepipe.auth.door import Holder, check_scope, identify, is_token
from voicepipe.auth.handshake import Handshake
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.known_keys import KnownKeys
from voicepipe.auth.origin import check_open, check_talk_page
from voicepipe.auth.proxies import TrustedProxies
from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.clock import monotonic_ms, unix_s
from voicepipe.cluster.port import Cluster
from voicepipe.errors import AuthError
from voicepipe.server.options import TalkMint
from voicepipe.server.refusals import PEER, TooManyAttempts

OPEN_PROJECT = "default"
"""Whose everything is while there are no API keys."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whoever was let in."""

    project: str
    holder: Holder | None
    """What they showed; None in open mode, where nothing was asked for and everything is allowed."""

    @property
    def claims(self) -> Claims | None:
        """What their token says; None when they came with an API key or without anything."""
        return self.holder if isinstance(self.holder, Claims) else None

    def check_scope(self, scope: str) -> None:
        """Demand that they may do what `scope` names.

        Raises:
            AuthError: 403.
        """
        if self.holder is not None:
            check_scope(self.holder, scope)

    @property
    def sees_all(self) -> bool:
        """Whether every project is theirs to look at: with the scope `operate_all`, and in open mode."""
        return self.holder is None or (self.claims is None and OPERATE_ALL in self.holder.scopes)

    def project_asked(self, asked: str | None) -> str | None:
        """The project whose things they get to see, when `?project=` says `asked`; None: those of all projects.

        An empty one was not asked for.

        Raises:
            AuthError: 403: they asked for another's.
        """
        if self.sees_all:
            return asked or None
        if asked and asked != self.project:
            raise AuthError(
                f"This credential is of the project {self.project!r}: others are seen with an API key that has the "
                f"scope {OPERATE_ALL!r}.",
                code="own_project_only",
                status=403,
            )
        return self.project


class Doorway:
    """Lets requests in. While no API key was ever made and only this machine can reach the server, it is open."""

    def __init__(
        self,
        *,
        key_store: KeyStore,
        api_keys: ApiKeys,
        cluster: Cluster,
        attempts: FailedAttempts,
        on_loopback: bool,
        proxies: TrustedProxies,
        allow_query: bool,
        allowed_origins: Collection[str],
        talk_mint: TalkMint,
    ) -> None:
        self._key_store, self._api_keys, self._cluster, self._attempts = key_store, api_keys, cluster, attempts
        self._known_keys = KnownKeys(api_keys)
        self._on_loopback, self._proxies, self._allow_query = on_loopback, proxies, allow_query
        self._allowed_origins, self._talk_mint = frozenset(allowed_origins), talk_mint

    def shown(self, request: web.Request) -> Handshake:
        """Return what the auth room reads of a request, with the sender that a trusted proxy tells of."""
        direct = Handshake.of(
            request.headers.items(), query=request.query.items(), peer=request.remote or "", tls=request.secure
        )
        shown = self._proxies.seen_through(direct)
        request[PEER] = shown.peer
        return shown

    def is_open(self) -> bool:
        """Tell whether this machine needs no key. Reads a file: call from a worker thread."""
        return self._on_loopback and self._is_new()

    async def admit(self, request: web.Request) -> Visitor:
        """Find out who sends this request.

        Raises:
            AuthError: 401 or 403, with a code and what to do about it.
            TooManyAttempts: 429, for an address that has shown too many bad credentials.
        """
        shown = self.shown(request)
        wait_ms = self._attempts.wait_ms(shown.peer, monotonic_ms())
        if wait_ms:
            raise TooManyAttempts(wait_ms)
        try:
            presented = find_credential(shown, allow_query=self._allow_query)
            visitor = self._recall(presented) or await self._find(shown, presented)
        except AuthError as error:
            if error.status == 401 and error.code != "missing_credential":  # who shows nothing guesses nothing
                self._attempts.failed(shown.peer, monotonic_ms())
            raise
        if visitor.claims is not None:
            await self.check_not_revoked(visitor.claims)
        return visitor

    async def check_not_revoked(self, claims: Claims) -> None:
        """Demand a token that nobody has taken back.

        Raises:
            AuthError: 401.
        """
        if await self._cluster.is_revoked(claims):
            raise AuthError("This client secret was revoked. Let your backend mint another one.", code="token_revoked")

    async def admit_talk_page(self, request: web.Request) -> str:
        """Let this server's own talk page in, and return its origin.

        Raises:
            AuthError: 403, with what to do about it.
        """
        shown = self.shown(request)
        if self._talk_mint == "never" or (self._talk_mint == "auto" and not await asyncio.to_thread(self._is_new)):
            raise AuthError(
                "This server has API keys or stands behind a proxy, so its talk page gets no token by itself. Get one "
                "from your backend (POST /v1/realtime/client_secrets), or on the server from 'voicepipe token'.",
                code="talk_page_needs_token",
                status=403,
            )
        check_talk_page(shown)
        return shown.values("origin")[0]

    def _is_new(self) -> bool:
        """Whether nobody has set up yet who may come in. A proxy on this machine makes all its callers look local."""
        return not self._proxies and not self._api_keys.any_made()

    def _recall(self, presented: Presented | None) -> Visitor | None:
        key = self._known_keys.recall(presented.secret) if presented is not None else None
        return None if key is None else Visitor(key.project, key)

    async def _find(self, shown: Handshake, presented: Presented | None) -> Visitor:
        as_of = self._known_keys.as_of()
        visitor = await asyncio.to_thread(self._look, shown, presented)
        if presented is not None and isinstance(visitor.holder, ApiKey):
            self._known_keys.learn(presented.secret, visitor.holder, as_of=as_of)
        return visitor

    def _look(self, shown: Handshake, presented: Presented | None) -> Visitor:
        """Runs in a worker thread: keys lie in a file."""
        if self._is_open_to(presented):
            check_open(shown, allowed_origins=self._allowed_origins)
            return Visitor(OPEN_PROJECT, None)
        if presented is None:
            raise missing_credential()
        now_s = unix_s()
        holder = identify(presented, keyring=self._key_store.keyring(now_s), api_keys=self._api_keys, now_s=now_s)
        return Visitor(holder.project, holder)

    def _is_open_to(self, presented: Presented | None) -> bool:
        """SDKs demand some key, so in open mode any will do; but a token is never taken without a look."""
        return not (presented is not None and is_token(presented.secret)) and self.is_open()
