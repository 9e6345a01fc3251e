"""Serve phone calls: a carrier's webhook, and its media stream as the connection of a session."""
