"""States in a database that is there anyway: PostgreSQL for a fleet, a SQLite file for one machine."""
