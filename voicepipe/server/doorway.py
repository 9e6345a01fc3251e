"""Authenticate an aiohttp request with the auth package."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from aiohttp import web

from voicepipe.auth.apikeys import ApiKeys
from voicepipe.auth.attempts import FailedAttempts
from voicepipe.auth.claims import Claims
from voicepipe.auth.credentials import Presented, find_credential, missing_credential
from voicepipe.auth.door import Holder, check_scope, identify, is_token
from voicepipe.auth.handshake import Handshake
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.keys import Keyring
from voicepipe.auth.known_keys import KnownKeys
from voicepipe.auth.origin import check_not_foreign, check_open, check_talk_page, is_foreign
from voicepipe.auth.proxies import TrustedProxies
from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.clock import monotonic_ms, unix_s
from voicepipe.cluster.port import Cluster
from voicepipe.errors import AuthError, UnknownCredential
from voicepipe.server.lookup_threads import LookupThreads
from voicepipe.server.options import TalkMint
from voicepipe.server.refusals import PEER, TooManyAttempts

OPEN_PROJECT = "default"
"""The project that owns everything while there are no API keys."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated client."""

    project: str
    holder: Holder | None
    """The credential; None in open mode, where none is required and everything is allowed."""

    @property
    def claims(self) -> Claims | None:
        """The token's claims; None for an API key or no credential."""
        return self.holder if isinstance(self.holder, Claims) else None

    def check_scope(self, scope: str) -> None:
        """Check that the visitor has the permission `scope`.

        Raises:
            AuthError: 403.
        """
        if self.holder is not None:
            check_scope(self.holder, scope)

    @property
    def sees_all(self) -> bool:
        """Whether the visitor may see every project: with the scope `operate_all`, and in open mode."""
        return self.holder is None or (self.claims is None and OPERATE_ALL in self.holder.scopes)

    def project_asked(self, asked: str | None) -> str | None:
        """Return the project that the visitor sees, when `?project=` is `asked`; None: all projects.

        An empty value counts as absent.

        Raises:
            AuthError: 403: `asked` is another project.
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
    """Authenticates requests. While no API key was ever made and only this machine can reach the server, it is open."""

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
        self._key_store, self._cluster, self._attempts = key_store, cluster, attempts
        self._known_keys, self._reading_keys = KnownKeys(api_keys), asyncio.Lock()
        self._threads = LookupThreads()
        self._on_loopback, self._proxies, self._allow_query = on_loopback, proxies, allow_query
        self._allowed_origins, self._talk_mint = frozenset(allowed_origins), talk_mint

    def shown(self, request: web.Request) -> Handshake:
        """Return the parts of a request that the auth package reads, with the sender that a trusted proxy reports."""
        direct = Handshake.of(
            request.headers.items(), query=request.query.items(), peer=request.remote or "", tls=request.secure
        )
        shown = self._proxies.seen_through(direct)
        request[PEER] = shown.peer
        return shown

    async def is_open(self) -> bool:
        """Return whether this machine needs no key."""
        await self._read_keys()
        return self._is_open()

    async def admit(self, request: web.Request) -> Visitor:
        """Authenticate the sender of this request.

        Raises:
            AuthError: 401 or 403, with a code and how to fix it.
            TooManyAttempts: 429, for an unknown credential from an address that has sent too many of these.
        """
        shown = self.shown(request)
        presented = find_credential(shown, allow_query=self._allow_query)
        await self._read_keys()
        try:
            visitor = await self._find(shown, presented)
        except UnknownCredential:
            self._count_guess(shown)
            raise
        if visitor.claims is not None:
            await self.check_not_revoked(visitor.claims)
        return visitor

    def check_not_foreign(self, shown: Handshake) -> None:
        """Refuse a request that a foreign page made its user's browser send, where no credential is required.

        Raises:
            AuthError: 403.
        """
        check_not_foreign(shown, allowed_origins=self._allowed_origins)

    def _count_guess(self, shown: Handshake) -> None:
        """Count an unknown credential, unless a foreign page sent it: its user's address must not pay for that.

        Raises:
            TooManyAttempts: the address has sent too many.
        """
        now_ms = monotonic_ms()
        wait_ms = self._attempts.wait_ms(shown.peer, now_ms)
        if wait_ms:
            raise TooManyAttempts(wait_ms)
        if not is_foreign(shown, allowed_origins=self._allowed_origins):
            self._attempts.failed(shown.peer, now_ms)

    async def check_not_revoked(self, claims: Claims) -> None:
        """Check that the token is not revoked.

        Raises:
            AuthError: 401.
        """
        if await self._cluster.is_revoked(claims):
            raise AuthError("This client secret was revoked. Let your backend mint another one.", code="token_revoked")

    async def admit_talk_page(self, request: web.Request) -> str:
        """Authenticate this server's own talk page, and return its origin.

        Raises:
            AuthError: 403, with how to fix it.
        """
        shown = self.shown(request)
        await self._read_keys()
        if self._talk_mint == "never" or (self._talk_mint == "auto" and not self._is_new()):
            raise AuthError(
                "This server has API keys or stands behind a proxy, so its talk page gets no token by itself. Get one "
                "from your backend (POST /v1/realtime/client_secrets), or on the server from 'voicepipe token'.",
                code="talk_page_needs_token",
                status=403,
            )
        check_talk_page(shown)
        return shown.values("origin")[0]

    def _is_new(self) -> bool:
        """Whether no credentials are set up yet. A proxy on this machine makes all its clients look local."""
        return not self._proxies and not self._known_keys.any_made()

    def _is_open(self) -> bool:
        return self._on_loopback and self._is_new()

    async def _read_keys(self) -> None:
        """Return the API keys as the file has them now. Concurrent requests that find it changed wait for one read."""
        if self._known_keys.is_current():
            return
        async with self._reading_keys:
            if not self._known_keys.is_current():
                await self._threads.run(self._known_keys.read)

    async def _find(self, shown: Handshake, presented: Presented | None) -> Visitor:
        if self._is_open_to(presented):
            check_open(shown, allowed_origins=self._allowed_origins)
            return Visitor(OPEN_PROJECT, None)
        if presented is None:
            raise missing_credential()
        now_s = unix_s()
        keyring = await self._keyring(now_s) if is_token(presented.secret) else Keyring(())
        holder = identify(presented, keyring=keyring, api_keys=self._known_keys, now_s=now_s)
        return Visitor(holder.project, holder)

    async def _keyring(self, now_s: int) -> Keyring:
        """Return the keys that sign tokens; the file is read in a worker thread, and only when it has changed."""
        ring = self._key_store.current()
        return ring if ring is not None else await self._threads.run(lambda: self._key_store.keyring(now_s))

    def _is_open_to(self, presented: Presented | None) -> bool:
        """SDKs require some key, so open mode accepts any; but a token is always checked."""
        return not (presented is not None and is_token(presented.secret)) and self._is_open()
