"""The three ports between a turn and its providers: `transcriber`, `model`, `synthesizer`; and `endpointing`, which
finds the strategies that end turns.

A port defines what a provider must do and guarantee. `testing/` holds the conformance suites that every provider and
every fake passes. Nothing here opens a socket.
"""
