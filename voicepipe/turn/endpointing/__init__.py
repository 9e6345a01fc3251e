"""Endpointing: the decision that the user has finished. The port, its two built-in strategies, and their supervision.

A strategy of your own: `web/docs/add-a-strategy.md`.
"""
