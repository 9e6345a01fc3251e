"""The three ports between a turn and its providers: `transcriber`, `model`, `synthesizer`.

A port says what a provider must do and promise; `testing/` holds the conformance suites that
every provider and every fake passes. Nothing here opens a socket.
"""
