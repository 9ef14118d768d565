"""Alembic migrations of the state store. ``database.Database.migrate`` runs them; there is no alembic.ini."""
