"""The store of turns' records: the port, its SQL, and one backend each for SQLite and Postgres."""
