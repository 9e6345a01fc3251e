"""Journals: the events and commands of a session, written to a file and replayed from it."""
