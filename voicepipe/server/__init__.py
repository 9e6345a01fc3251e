"""The face to clients: one aiohttp app on one port, which takes ready parts and builds none.

`app` puts the routes together from `Parts`; `doorway` asks the auth room who is there; `realtime` is the WebSocket
endpoint and `socket` the line that it hands to a session. `desk` writes client secrets, `secrets` and `legacy` are its
routes; `calls` finds the calls of a revoked one, `meter` counts what a call uses of its own. `turns`, `stats`,
`turn_stream`, `turn_export`, `forget` and `webhooks_list` are for integrations, with `turn_queries` for what they are
asked and `open_sessions` for who is there; `metrics`, `health`, `dashboard` and `pages` are the other routes;
`traces` takes callers' trace contexts. `headers` says to browsers what they may do, `refusals` says no in the shape
that SDKs read, `told` in one that browsers show to a page; `lobby` counts who is inside, `slots` shares places with
other processes; `listening` opens the port and closes it, `tls` has its certificate.
"""
