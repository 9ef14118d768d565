"""Connections: the one home of addresses and secrets. Named in configuration, resolved at run time only."""

from typing import Any

import msgspec

from ticdc_replay.domain.errors import ConfigError


class Connection(msgspec.Struct, frozen=True):
    """One connection, in the fields Airflow uses. Never written to an artefact; its repr hides what is secret."""

    conn_id: str
    conn_type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = None
    schema: str | None = None
    extra: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Connection({self.conn_id!r}, {self.conn_type!r}, host={self.host!r}, port={self.port!r})"


class Connections(msgspec.Struct, frozen=True):
    """The connections of one run, by id."""

    by_id: dict[str, Connection] = {}
    artifacts: str | None = None
    """Id of the connection that opens the store of the artefacts; None where that store needs none."""

    def __repr__(self) -> str:
        return f"Connections({', '.join(sorted(self.by_id))})"

    def get(self, conn_id: str | None) -> Connection | None:
        """The connection called *conn_id*, None for None. Raises ConfigError when there is none of that name."""
        return None if conn_id is None else self[conn_id]

    def __getitem__(self, conn_id: str) -> Connection:
        """The connection called *conn_id*. Raises ConfigError when there is none."""
        try:
            return self.by_id[conn_id]
        except KeyError:
            known = ", ".join(sorted(self.by_id)) or "none"
            raise ConfigError(f"connection {conn_id!r} is not defined; known connections: {known}") from None
