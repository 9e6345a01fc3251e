"""Whose turn is it: the pure core of a conversation.

Facts go in (`events`), orders come out (`commands`), and time is an argument. Nothing in this
room does I/O, reads a clock, logs, or draws a random number; `tests/test_house.py` sees to it.
"""
