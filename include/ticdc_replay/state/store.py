"""Opening the state store: one database, and what it knows by subject."""

from ticdc_replay.state.coverage import CoverageOfTargets
from ticdc_replay.state.database import Database
from ticdc_replay.state.ddl import TopicDdl
from ticdc_replay.state.deletion_plans import DeletionPlans
from ticdc_replay.state.generations import Generations
from ticdc_replay.state.leases import Leases
from ticdc_replay.state.manifests import Manifests
from ticdc_replay.state.quarantine import Quarantine
from ticdc_replay.state.reconciliations import Reconciliations
from ticdc_replay.state.references import References
from ticdc_replay.state.runs import Runs
from ticdc_replay.state.sparse_index import SparseIndex
from ticdc_replay.state.table_versions import KnownTableVersions


def open_state(url: str) -> "StateStore":
    """The state store at the SQLAlchemy URL *url*: a SQLite file (made if absent) or a PostgreSQL database.

    Brings the schema to the newest version. Raises ConfigError for another kind of URL or a missing database,
    AuthenticationError, TransientError when the server is away, PermanentError where a newer library has migrated it.
    """
    database = Database(url)
    database.migrate()
    return StateStore(database)


class StateStore:
    """What is known across runs, one attribute a subject. Thread-safe; every method of a subject is one transaction.

    Writing a record again replaces it, so a retry does no harm. Every method may raise TransientError (locked, server away).
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.manifests = Manifests(database)
        self.runs = Runs(database)
        self.generations = Generations(database)
        self.coverage = CoverageOfTargets(database)
        self.quarantine = Quarantine(database)
        self.ddl = TopicDdl(database)
        self.table_versions = KnownTableVersions(database)
        self.sparse_index = SparseIndex(database)
        self.references = References(database)
        self.reconciliations = Reconciliations(database)
        self.deletion_plans = DeletionPlans(database)
        self.leases = Leases(database)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
