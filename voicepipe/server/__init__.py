"""The HTTP and WebSocket server: one aiohttp app on one port. It takes ready parts and builds none.

`app` registers the routes from `context` and opens the port. `authenticate` turns a request into a principal,
`token_issuer` mints client secrets, and `realtime` admits a session. `sessions/` holds what runs: the sessions, their
slots, connections and resumption. `usage_limits` counts what is used of a client secret, `revocations` ends what runs
with it. `gateway/` has the model endpoints, `api/` those of integrations and operators.

Below the routes: `acceptor`, `connections` and `connection_limits` accept connections and bound what unauthenticated
clients can hold; `http_protocol`, `request_bodies`, `form_reader`, `upload` and `decoding` read requests; `headers`,
`errors`, `streaming` and `websocket_auth_errors` answer them; `tls` loads the certificate.
"""
