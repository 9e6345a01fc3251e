"""The sessions that run: their connections, their limits, and how a broken connection is resumed."""
