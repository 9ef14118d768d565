"""Runs the migrations on the connection that ``database.Database.migrate`` hands over, inside its transaction."""

from alembic import context

from ticdc_replay.state.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
