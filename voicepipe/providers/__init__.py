"""Vendor adapters only: one package for each vendor, each adapter maps one wire protocol to one of the three ports of
`ports/`.

An adapter translates. It does not retry, has no circuit breaker, and measures nothing: that is done once, in `router/`
and in the turn core. `registry` finds adapters by spec and imports only those in use. `net/` holds what adapters share:
connections, failures, server-sent events.
"""
