"""Migrations of the state store, by Alembic."""

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection

from ticdc_replay.domain.errors import PermanentError

logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs each opening, also without a migration


def upgrade(connection: Connection, name: str) -> None:
    """Bring the schema of the state store *name* to the newest version, in the transaction of *connection*.

    Nothing is done where it is there already. Raises PermanentError where a newer library has been here.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None:
        try:
            scripts.get_revision(revision)
        except CommandError:
            raise PermanentError(
                f"the state store {name} has schema {revision}, which this version does not know: a newer ticdc-replay has "
                "migrated it; upgrade this installation"
            ) from None
    if revision != scripts.get_current_head():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
