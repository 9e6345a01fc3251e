"""The Realtime wire, without I/O: a client's JSON becomes events, notifications become JSON.

Inbound: `inbound.read` returns a typed value for any message, and `Unreadable` for what cannot be read.
`session_config.SessionConfig` is the whole effective session, and `merged` applies a `session.update` to it.

Outbound: one `outbound.EventRenderer` per session turns notifications and the reply's output into encoded events, in
the order that clients need. `dialect` holds the shapes that differ between the published (GA) and the older (beta)
events. Nothing here opens a socket, starts a task or reads a clock.
"""
