"""Vendors, and nothing else: each module turns one wire into one of the three ports of `stages/`.

An adapter translates. It does not retry, does not break circuits, and measures nothing: that lives once, in
`router/` and in the turn core. Adapters are found by spec through `registry`; only what is used is imported.
`net/` holds what adapters share on their way to a vendor: connections, failures, server-sent events.
"""
