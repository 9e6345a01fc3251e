"""Endpointing: the decision that the user has finished. The port, the built-in strategies, and their supervision.

A new strategy: `web/docs/add-a-strategy.md`.
"""
