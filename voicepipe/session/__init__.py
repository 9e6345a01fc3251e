"""One caller: everything between a client's socket and the turn core, with every task of it."""
