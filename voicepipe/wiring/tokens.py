"""Build the keys and the issuer of client secrets, for the server and for the command line."""

from __future__ import annotations

from voicepipe.auth.key_store import KeyStore
from voicepipe.auth.tokens import audience_of
from voicepipe.cluster.port import Cluster
from voicepipe.server.token_issuer import TokenIssuer
from voicepipe.wiring.reload import SettingsInForce


def token_issuer(in_force: SettingsInForce, cluster: Cluster, keys: KeyStore) -> TokenIssuer:
    """Return the issuer of client secrets for the settings in force."""
    return TokenIssuer(
        key_store=keys,
        cluster=cluster,
        agent_named=in_force.agent_named,
        start_config=in_force.start_config,
        unpriced=in_force.unpriced,
        audience=audience_of(in_force.settings.cluster.region),
    )
