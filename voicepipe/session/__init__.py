"""One session: everything between a client's socket and the turn core, with all of its tasks."""
