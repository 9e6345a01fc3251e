"""The Realtime wire, without I/O: a client's JSON becomes facts, announcements become JSON.

Inbound: `client_events.read` gives a typed value for any message, and `Unreadable` for what can't be read.
`session_config.SessionConfig` is the whole effective session, and `merged` is what `session.update` does to it.
Outbound: one `writer.Wire` a session turns announcements and the reply's output into encoded events, in the order
that clients rely on; `dialect` holds the shapes that differ between the published (GA) and the older (beta) events.
Nothing here opens a socket, starts a task or reads a clock.
"""
