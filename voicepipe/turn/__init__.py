"""The pure core of a conversation: it decides whose turn it is.

Events go in (`events`), commands come out (`commands`), and time is an argument. Nothing in this package does I/O,
reads a clock, logs, or draws a random number; `tests/test_architecture.py` checks this.
"""
