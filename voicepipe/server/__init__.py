"""The HTTP and WebSocket server: one aiohttp app on one port. It takes ready parts and builds none.

`app` registers the routes from `ServerContext`; `authenticator` authenticates a request with the auth package;
`realtime` is the WebSocket endpoint and `socket` the connection that it passes to a session. `desk` mints client
secrets, `secrets` and `legacy` are its routes. `calls` finds the sessions of a revoked client secret; `meter` counts
what a session uses of its client secret. `turns`, `stats`, `turn_stream`, `turn_export`, `forget` and `webhooks_list`
are for integrations. `turn_queries` parses their query parameters, and `open_sessions` lists the sessions that are
open. `metrics`, `health`, `dashboard` and `pages` are the other routes; `traces` accepts clients' trace contexts.
`headers` adds response headers for browsers. `refusals` returns errors in the shape that SDKs read, and `told` in a
shape that browsers show to a page. `capacity` counts the sessions; `slots` shares the limit with other processes.
`listening` opens and closes the port; `tls` provides its certificate.
"""
