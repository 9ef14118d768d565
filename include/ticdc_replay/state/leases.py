"""Who uses a claim-check store now: replays, any number of them, and at most one deletion; who decodes what several windows
share, and who works on what is built beside a mirror, which is one at a time.

A lease ends at its time to live unless it is renewed. All times are taken from one clock: PostgreSQL's own, or that of the one
machine that a SQLite file is on; so clocks of workers don't matter.
"""

from datetime import UTC, datetime
from typing import Literal

import msgspec
from sqlalchemy import Connection, delete, select, update

from ticdc_replay.domain.errors import LeaseHeldError, LeaseLostError
from ticdc_replay.state import tables
from ticdc_replay.state.rows import Subject, insert_new, now_ms, record_of, row_of

LeaseKind = Literal["replay", "deletion", "decode", "rebuild"]
"""Many replays use a store at once, beside one deletion."""
_DOES: dict[LeaseKind, str] = {
    "deletion": "is deleting there (plan {})",
    "decode": "decodes it ({})",
    "rebuild": "works on what is built beside it ({})",
}


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who uses a resource, and until when that counts unless it is renewed. Times are of the state store's clock."""

    resource: str
    """As ``Leases`` has it."""
    holder: str
    """Differs between any two processes and attempts, but for those that hand one piece of work over to each other."""
    kind: LeaseKind
    subject: str
    """What is done: the replayed input, the hash of the deletion plan."""
    acquired_at_ms: int
    expires_at_ms: int


class Leases(Subject):
    """The leases of claim-check stores, of changelogs that are decoded, and of mirrors. A time to live is in milliseconds.

    ``resource`` is a store's URI, that of a changelog that is decoded, or the place of a mirror (``TargetSection.place_of``).
    """

    def acquire(self, resource: str, holder: str, kind: LeaseKind, subject: str, ttl_ms: int) -> Lease:
        """Take a lease; *holder* may have it already, and has it for *ttl_ms* from now on.

        Atomic. A replay never fails to get one. Raises LeaseHeldError for any other kind while another holder has one
        that is not a replay's.
        """
        table = tables.lease
        with self._database.writing() as connection:
            now = now_ms(connection)
            of_resource = table.c.resource == resource
            connection.execute(delete(table).where(of_resource, table.c.holder == holder))
            if kind != "replay":
                connection.execute(delete(table).where(of_resource, table.c.kind == kind, table.c.expires_at_ms <= now))
            lease = Lease(
                resource=resource,
                holder=holder,
                kind=kind,
                subject=subject,
                acquired_at_ms=now,
                expires_at_ms=now + ttl_ms,
            )
            insert_new(connection, table, [row_of(lease)])
            # The partial unique index lets one in: whose is it?
            wanted = select(table).where(of_resource, table.c.kind == kind)
            if kind == "replay":
                wanted = wanted.where(table.c.holder == holder)
            row = connection.execute(wanted).one_or_none()
            if row is None:  # released since our row was not inserted
                raise LeaseHeldError(f"{resource}: another {kind} has just ended there; run this one again")
            if row.holder != holder:
                until = datetime.fromtimestamp(row.expires_at_ms / 1000, UTC).isoformat(timespec="seconds")
                raise LeaseHeldError(
                    f"{resource}: {row.holder} {_DOES[kind].format(row.subject)}, with a lease until {until} that it "
                    "renews. Run this one again after its end; if it died, its lease ends by itself"
                )
        return lease

    def renew(self, lease: Lease, ttl_ms: int) -> Lease:
        """*lease*, which lasts for *ttl_ms* from now on. Raises LeaseLostError where it has ended or is not there."""
        with self._database.writing() as connection:
            now = now_ms(connection)
            self._change(connection, lease, now, expires_at_ms=now + ttl_ms)
        return msgspec.structs.replace(lease, expires_at_ms=now + ttl_ms)

    def hand_over(self, lease: Lease, holder: str, ttl_ms: int) -> None:
        """*holder*, who is another one, has *lease* from now on, for *ttl_ms*; it may have one of the resource already.

        Atomic: nobody else can take the resource in between. Raises LeaseLostError where the lease has ended or is not there.
        """
        table = tables.lease
        with self._database.writing() as connection:
            now = now_ms(connection)
            connection.execute(delete(table).where(table.c.resource == lease.resource, table.c.holder == holder))
            self._change(connection, lease, now, holder=holder, expires_at_ms=now + ttl_ms)

    def release(self, lease: Lease) -> None:
        """End *lease*, and with it leases for the same subject whose holders died. Nothing happens where it is not there."""
        table = tables.lease
        with self._database.writing() as connection:
            now = now_ms(connection)
            same = (table.c.resource == lease.resource, table.c.kind == lease.kind)
            connection.execute(delete(table).where(*same, table.c.holder == lease.holder))
            connection.execute(
                delete(table).where(*same, table.c.subject == lease.subject, table.c.expires_at_ms <= now)
            )

    @staticmethod
    def _change(connection: Connection, lease: Lease, now: int, **values: str | int) -> None:
        table = tables.lease
        changed = connection.execute(
            update(table)
            .where(
                table.c.resource == lease.resource,
                table.c.holder == lease.holder,
                table.c.acquired_at_ms == lease.acquired_at_ms,
                table.c.expires_at_ms > now,
            )
            .values(values)
        )
        if changed.rowcount != 1:
            raise LeaseLostError(
                f"{lease.holder} has lost its lease of {lease.resource} for the {lease.kind} of {lease.subject}: it was not "
                "renewed in time. Was the machine paused, or the state store away? Run it again"
            )

    def current(self, resource: str) -> list[Lease]:
        """The leases of *resource* that last now, oldest first."""
        return self._leases(resource, lasting=True)

    def lapsed(self, resource: str) -> list[Lease]:
        """The leases of *resource* that ended without being released: their holders died. Oldest first.

        A replay's is forgotten when its subject is replayed to its end, another when the next takes the resource.
        """
        return self._leases(resource, lasting=False)

    def _leases(self, resource: str, *, lasting: bool) -> list[Lease]:
        columns = tables.lease.c
        with self._database.reading() as connection:
            now = now_ms(connection)
            in_time = columns.expires_at_ms > now if lasting else columns.expires_at_ms <= now
            wanted = select(tables.lease).where(columns.resource == resource, in_time)
            rows = connection.execute(wanted.order_by(columns.acquired_at_ms, columns.holder)).all()
        return [record_of(Lease, row) for row in rows]
