"""The state store: what is known across runs, in one small SQL database (SQLite by default, PostgreSQL in production).

``records`` are the values, ``store.StateStore`` reads and writes them, ``database`` connects, ``tables`` and ``migrations``
are the schema. The store holds names, ranges and counts, never rows of a table, and is separate from Airflow's own database,
which tasks can't reach. Artefacts are files elsewhere; what is lost here can be rebuilt from them, except which manifest a
window has.
"""

from ticdc_replay.state.records import Coverage, CoveredTable, ReferenceFile, Run, Stretch, WindowManifest
from ticdc_replay.state.store import StateStore, open_state

__all__ = [
    "Coverage",
    "CoveredTable",
    "ReferenceFile",
    "Run",
    "StateStore",
    "Stretch",
    "WindowManifest",
    "open_state",
]
