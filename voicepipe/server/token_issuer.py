"""Mint client secrets from a backend's request."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec

from voicepipe.auth.claims import Claims, Limits, Lock, Name
from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.scopes import TOKEN_DEFAULT
from voicepipe.auth.tokens import AUDIENCE, ISSUER, fits_inline, mint, new_token_id
from voicepipe.clock import unix_s
from voicepipe.cluster.port import Cluster
from voicepipe.errors import ProtocolError, validation_place
from voicepipe.protocol.field_locks import check_locks
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.server.lookup_threads import LookupThreads
from voicepipe.server.sessions.slots import RESERVED_S
from voicepipe.session.grant import SessionGrant

LIFE_S: Final = 600
MIN_LIFE_S: Final = 10
MAX_LIFE_S: Final = 7_200
"""The published default and bounds of `expires_after.seconds`."""


class ExpiresAfter(msgspec.Struct, frozen=True):
    """The time from which the client secret starts no more sessions."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, msgspec.Meta(ge=MIN_LIFE_S, le=MAX_LIFE_S)] = LIFE_S


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The extension of the request. An unknown field is refused: a misspelt limit would otherwise be no limit."""

    subject: Name = ""
    """The customer's name of the user; used by revocation by subject."""

    identity: Name = ""
    """A readable name."""

    scopes: tuple[str, ...] = TOKEN_DEFAULT
    limits: Limits = Limits()
    routing: dict[Annotated[str, msgspec.Meta(max_length=64)], Name] = msgspec.field(default_factory=dict)
    """Free names and values that routing rules may use."""

    locks: tuple[Lock, ...] = ()
    reserve: bool = False
    """Hold a slot for the first session, for 10 s."""


class SecretRequest(msgspec.Struct, frozen=True):
    """The body of the request; every part is optional. Unknown fields are skipped, as everywhere in this protocol."""

    expires_after: ExpiresAfter | None = None
    session: dict[str, Any] | None = None
    voicepipe: TokenRequest | None = None


@dataclass(frozen=True, slots=True)
class Minted:
    """A client secret and the session that it would start."""

    value: str = field(repr=False)
    expires_at: int
    session: SessionConfig
    token_id: str
    """The ID that revokes it; not secret."""

    reserved_until_s: int
    """Until when a slot is reserved for its first session; 0: none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """Mints client secrets."""

    key_store: KeyStore
    cluster: Cluster

    agent_named: Callable[[str], str | None]
    """Return the agent of that name or alias."""

    start_config: Callable[[SessionGrant], SessionConfig]
    """Return the session that a grant starts with, before the token's own config."""

    unpriced: Callable[[str], str | None]
    """Return the setting that is missing to price an agent; None: all prices are set."""

    audience: str = AUDIENCE
    """Who accepts the secrets: the nodes of one region."""

    _threads: LookupThreads = field(default_factory=LookupThreads, init=False, repr=False)

    async def mint(self, project: str, requested: SecretRequest, *, key_id: str = "") -> Minted:
        """Mint the requested secret; a session config too large for the token is first stored in the cluster's store.

        `key_id`: of the API key that mints it; empty without one.

        Raises:
            ProtocolError: the request cannot be met; `field` names the wrong field.
        """
        now_s, token = unix_s(), requested.voicepipe or TokenRequest()
        expires_at = now_s + (requested.expires_after or ExpiresAfter()).seconds
        session = requested.session or {}
        preview = self._session_preview(project, session, token, expires_at)
        check_locks(preview, token.locks)
        token_id, inline = new_token_id(), fits_inline(session)
        claims = Claims(
            issuer=ISSUER,
            audience=self.audience,
            subject=token.subject,
            issued_at_s=now_s,
            not_before_s=now_s,
            expires_at_s=expires_at,
            token_id=token_id,
            project=project,
            identity=token.identity,
            scopes=token.scopes,
            limits=token.limits,
            routing=token.routing,
            locks=token.locks,
            key_id=key_id,
            reserved_until_s=now_s + RESERVED_S if token.reserve else 0,
            config_id="" if inline else token_id,
            session=session if inline else {},
        )
        keyring = await self._threads.run(lambda: self.key_store.keyring(now_s))
        value = await self._threads.run(lambda: mint(claims, keyring.signer))  # an RSA signature takes a millisecond
        if not inline:
            stored = msgspec.json.encode(session)
            await self.cluster.store_config(token_id, stored, project=project, until_s=expires_at, now_s=now_s)
        return Minted(value, expires_at, preview, token_id, claims.reserved_until_s)

    def _session_preview(
        self, project: str, session: dict[str, Any], token: TokenRequest, expires_at: int
    ) -> SessionConfig:
        """Return the whole session that the token will start, and check that it can start."""
        model = session.get("model")
        if model is not None and not isinstance(model, str):
            raise ProtocolError(f"Expected a text, got {type(model).__name__}.", field="session.model")
        agents = self._agents(token.limits)
        agent = (self.agent_named(model) if model else None) or next(iter(agents), "default")
        grant = SessionGrant(
            session_id=f"sess_{secrets.token_urlsafe(18)}",
            project=project,
            agent=agent,
            model=model or agent,
            identity=None,
            config=session,
            metadata=metadata_of(session, token.routing),
            expires_at=expires_at,
        )
        self._check_prices(token.limits, (*agents, agent))
        return self.start_config(grant).merged(session)

    def _agents(self, limits: Limits) -> tuple[str, ...]:
        for position, agent in enumerate(limits.agents):
            if self.agent_named(agent) != agent:
                raise ProtocolError(
                    f"Expected the name of an agent, got {agent[:64]!r}.", field=f"voicepipe.limits.agents[{position}]"
                )
        return limits.agents

    def _check_prices(self, limits: Limits, agents: tuple[str, ...]) -> None:
        """Check that all prices are set if spending is limited."""
        missing = next(filter(None, map(self.unpriced, agents)), None) if limits.spend_usd is not None else None
        if missing is not None:
            raise ProtocolError(
                f"A limit on spending needs prices, and {missing} is not set.", field="voicepipe.limits.spend_usd"
            )


def metadata_of(session: Mapping[str, Any] | None, routing: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a client secret: those of its session, and its routing's, which win."""
    found: Any = session
    for key in ("providerData", "voicepipe", "metadata"):
        found = found.get(key) if isinstance(found, dict) else None
    own = {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
    return tuple((own | dict(routing)).items())


def read_secret_request(body: bytes) -> SecretRequest:
    """Read the request's body; an empty body means the defaults.

    Raises:
        ProtocolError: it is not the expected JSON object; `field` is the dotted path of the wrong field.
    """
    return read_json(body, SecretRequest) if body.strip() else SecretRequest()


def read_json(body: bytes, kind: Any) -> Any:
    """Read a request's body as `kind`, a msgspec Struct.

    Raises:
        ProtocolError: as in `read_secret_request`.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as wrong:
        why, path = validation_place(wrong)
        raise ProtocolError(why, field=path or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProtocolError("Expected a JSON object as the body, or no body.", code="invalid_json") from None
