"""What was done about quarantines: re-drives, and entries that a person accepted as lost."""

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import Connection, delete, select

from ticdc_replay.domain.topics import TopicIdentity
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject, insert_new, row_of


class Redrive(msgspec.Struct, frozen=True, order=True):
    """A run that came out of the quarantine of another, and where it was loaded.

    ``target`` is "" for the run itself: its changelog is complete.
    """

    pipeline: str
    run_hash: str
    """The run whose quarantine it was."""
    redrive_hash: str
    target: str
    recorded_at_ms: int
    place: str = ""
    """Of the target, as in ``coverage.Coverage``; "" for the run itself."""


class AcceptedLoss(msgspec.Struct, frozen=True, order=True):
    """An entry of a quarantine that a person accepted as lost, for the reason it stands there and for no other.

    ``ordinal`` is -1 for a whole message. Of what earlier versions recorded, ``topic`` has the id alone.
    """

    pipeline: str
    topic: TopicIdentity
    partition: int
    offset: int
    ordinal: int
    reason: str
    run_hash: str
    """The run in whose quarantine it stood."""
    person: str
    why: str
    record: str
    """Name of the record in the artefact store."""
    accepted_at_ms: int


class Quarantine(Subject):
    """The re-drives and the accepted losses of pipelines."""

    def record_redrive(self, redrive: Redrive) -> None:
        """Note a re-drive, or that it is in a target."""
        self._replace(tables.redrive, [redrive])

    def forget_redrives(self, pipeline: str, place: str, redrives: Sequence[str]) -> None:
        """Note that *place* does not hold the *redrives* any more."""
        with self._database.writing() as connection:
            delete_redrives(connection, pipeline, place, redrives)

    def redrives(self, pipeline: str, run_hash: str) -> list[Redrive]:
        """The re-drives of the quarantine of *run_hash*, and where they were loaded, oldest first."""
        columns = tables.redrive.c
        wanted = select(tables.redrive).where(columns.pipeline == pipeline, columns.run_hash == run_hash)
        found = self._records(Redrive, wanted)
        return sorted(found, key=lambda redrive: (redrive.recorded_at_ms, redrive.redrive_hash, redrive.target))

    def record_accepted_losses(self, losses: Iterable[AcceptedLoss]) -> None:
        """Keep what a person accepted; the first acceptance of an entry stays."""
        with self._database.writing() as connection:
            insert_new(connection, tables.accepted_loss, [row_of(loss) for loss in losses])

    def accepted_losses(self, pipeline: str) -> list[AcceptedLoss]:
        """All that was accepted as lost of *pipeline*."""
        wanted = select(tables.accepted_loss).where(tables.accepted_loss.c.pipeline == pipeline)
        return sorted(self._records(AcceptedLoss, wanted))


def delete_redrives(connection: Connection, pipeline: str, place: str, redrives: Sequence[str]) -> None:
    """Note in the transaction of *connection* that *place* does not hold the *redrives* any more."""
    columns = tables.redrive.c
    for redrive_hash in redrives:
        connection.execute(
            delete(tables.redrive).where(
                columns.pipeline == pipeline, columns.place == place, columns.redrive_hash == redrive_hash
            )
        )
