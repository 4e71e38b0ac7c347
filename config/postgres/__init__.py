"""Django's backend for PostgreSQL, for servers that fail over (see ``base``)."""
