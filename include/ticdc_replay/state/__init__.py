"""The state store: what is known across runs, in one small SQL database (SQLite by default, PostgreSQL in production).

``open_state`` opens it, and each attribute of the ``StateStore`` is one subject, with a module of that name that holds its
records and its SQL: ``manifests``, ``runs``, ``generations``, ``coverage``, ``quarantine``, ``ddl``, ``table_versions``,
``sparse_index`` and ``references`` of pipelines; ``reconciliations`` and ``deletion_plans`` of claim-check stores; ``leases``.
``store`` opens, ``database`` connects, ``tables`` and ``migrations`` are the schema, ``rows`` is what the subjects share. Times
that end in ``_ms`` are milliseconds since the Unix epoch.

The store holds names, ranges and counts, never rows of a table, and is separate from Airflow's own database, which tasks can't
reach. Artefacts are files elsewhere; what is lost here can be rebuilt from them, except which manifest a window has.
"""

from ticdc_replay.state.store import StateStore, open_state

__all__ = ["StateStore", "open_state"]
