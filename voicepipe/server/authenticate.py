"""Authenticate an aiohttp request with the auth package."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from aiohttp import web
from msgspec import Struct

from voicepipe.auth.api_key_cache import ApiKeyCache
from voicepipe.auth.apikeys import ApiKey, ApiKeys
from voicepipe.auth.claims import Claims
from voicepipe.auth.credentials import Presented, find_credential, missing_credential
from voicepipe.auth.identify import Holder, check_scope, identify, is_token
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.keys import Keyring
from voicepipe.auth.origin import check_not_foreign, check_open, check_talk_page, is_foreign
from voicepipe.auth.proxies import TrustedProxies
from voicepipe.auth.rate_limit import FailedAttempts
from voicepipe.auth.request_credentials import Handshake
from voicepipe.auth.scopes import OPERATE_ALL
from voicepipe.auth.tokens import AUDIENCE
from voicepipe.clock import monotonic_ms, unix_s
from voicepipe.cluster.port import Cluster
from voicepipe.errors import AuthError, UnknownCredential
from voicepipe.server.errors import PEER, TooManyAttempts
from voicepipe.server.lookup_threads import LookupThreads
from voicepipe.server.options import TalkPageTokens

OPEN_PROJECT = "default"
"""The project that owns everything while there are no API keys."""


class Principal(Struct, frozen=True):
    """An authenticated client."""

    project: str
    holder: Holder | None
    """The credential; None in open mode, where none is required and everything is allowed."""

    @property
    def claims(self) -> Claims | None:
        """The token's claims; None for an API key or no credential."""
        return self.holder if isinstance(self.holder, Claims) else None

    @property
    def key_id(self) -> str:
        """The ID of its API key, or of the one that minted its token; empty without one."""
        match self.holder:
            case Claims(key_id=key_id):
                return key_id
            case ApiKey(id=key_id):
                return key_id
            case None:
                return ""

    def check_scope(self, scope: str) -> None:
        """Check that the visitor has the permission `scope`.

        Raises:
            AuthError: 403.
        """
        if self.holder is not None:
            check_scope(self.holder, scope)

    @property
    def sees_all(self) -> bool:
        """Whether the principal may read every project: with the scope `operate_all`, and in open mode."""
        return self.holder is None or (self.claims is None and OPERATE_ALL in self.holder.scopes)

    def requested_project(self, requested: str | None) -> str | None:
        """Return the project that the principal reads, when `?project=` is `requested`; None: all projects.

        An empty value counts as absent.

        Raises:
            AuthError: 403: `requested` is another project.
        """
        if self.sees_all:
            return requested or None
        if requested and requested != self.project:
            raise AuthError(
                f"This credential belongs to project {self.project!r}. To read others, use an API key with the "
                f"scope {OPERATE_ALL!r}.",
                code="own_project_only",
                status=403,
            )
        return self.project


class Authenticator:
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
        talk_page_tokens: TalkPageTokens,
        audience: str = AUDIENCE,
    ) -> None:
        """`audience`: that of the client secrets which are accepted here."""
        self._key_store, self._cluster, self._attempts = key_store, cluster, attempts
        self._known_keys, self._reading_keys = ApiKeyCache(api_keys), asyncio.Lock()
        self._threads = LookupThreads()
        self._on_loopback, self._proxies, self._allow_query = on_loopback, proxies, allow_query
        self._allowed_origins, self._talk_page_tokens = frozenset(allowed_origins), talk_page_tokens
        self._audience = audience

    def handshake(self, request: web.Request) -> Handshake:
        """Return the parts of a request that the auth package reads, with the sender that a trusted proxy reports."""
        direct = Handshake.of(
            request.headers.items(), query=request.query.items(), peer=request.remote or "", tls=request.secure
        )
        handshake = self._proxies.seen_through(direct)
        request[PEER] = handshake.peer
        return handshake

    async def is_open(self) -> bool:
        """Return whether this machine needs no key."""
        await self._read_keys()
        return self._is_open()

    async def admit(self, request: web.Request) -> Principal:
        """Authenticate the sender of this request.

        Raises:
            AuthError: 401 or 403, with a code and how to fix it.
            TooManyAttempts: 429, for an unknown credential from an address that has sent too many of these.
        """
        handshake = self.handshake(request)
        presented = find_credential(handshake, allow_query=self._allow_query)
        await self._read_keys()
        try:
            principal = await self._find(handshake, presented)
        except UnknownCredential:
            self._count_guess(handshake)
            raise
        if principal.claims is not None:
            await self.check_not_revoked(principal.claims)
        return principal

    def check_not_foreign(self, handshake: Handshake) -> None:
        """Refuse a request that a foreign page made its user's browser send, where no credential is required.

        Raises:
            AuthError: 403.
        """
        check_not_foreign(handshake, allowed_origins=self._allowed_origins)

    def _count_guess(self, handshake: Handshake) -> None:
        """Count an unknown credential, unless a foreign page sent it: its user's address must not pay for that.

        Raises:
            TooManyAttempts: the address has sent too many.
        """
        now_ms = monotonic_ms()
        wait_ms = self._attempts.wait_ms(handshake.peer, now_ms)
        if wait_ms:
            raise TooManyAttempts(wait_ms)
        if not is_foreign(handshake, allowed_origins=self._allowed_origins):
            self._attempts.failed(handshake.peer, now_ms)

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
        handshake = self.handshake(request)
        await self._read_keys()
        if self._talk_page_tokens == "never" or (self._talk_page_tokens == "auto" and not self._is_new()):
            raise AuthError(
                "This server has API keys or stands behind a proxy, so its talk page gets no token by itself. Get one "
                "from your backend (POST /v1/realtime/client_secrets), or on the server from 'voicepipe token'.",
                code="talk_page_needs_token",
                status=403,
            )
        check_talk_page(handshake)
        return handshake.values("origin")[0]

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

    async def _find(self, handshake: Handshake, presented: Presented | None) -> Principal:
        if self._is_open_to(presented):
            check_open(handshake, allowed_origins=self._allowed_origins)
            return Principal(OPEN_PROJECT, None)
        if presented is None:
            raise missing_credential()
        now_s = unix_s()
        keyring = await self._keyring(now_s) if is_token(presented.secret) else Keyring(())
        holder = identify(presented, keyring=keyring, api_keys=self._known_keys, now_s=now_s, audience=self._audience)
        return Principal(holder.project, holder)

    async def _keyring(self, now_s: int) -> Keyring:
        """Return the keys that sign tokens; the file is read in a worker thread, and only when it has changed."""
        ring = self._key_store.current()
        return ring if ring is not None else await self._threads.run(lambda: self._key_store.keyring(now_s))

    def _is_open_to(self, presented: Presented | None) -> bool:
        """SDKs require some key, so open mode accepts any; but a token is always checked."""
        return not (presented is not None and is_token(presented.secret)) and self._is_open()
