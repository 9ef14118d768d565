"""What every stage of a reconciliation or a deletion needs, opened when it is first used."""

from functools import cached_property

from ticdc_replay.config.load_store import LoadedStore
from ticdc_replay.config.store import Store
from ticdc_replay.domain.connections import Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.stages.context import ReplayContext, connection_ids, state_url
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.storage import ObjectStore, open_store


class StoreContext:
    """One claim-check store and its pipelines, connections resolved. A context manager: leaving it closes what was opened."""

    def __init__(self, loaded: LoadedStore, connections: Connections) -> None:
        self.loaded = loaded
        self.connections = connections

    def __enter__(self) -> "StoreContext":
        return self

    def __exit__(self, *_: object) -> None:
        if "state" in self.__dict__:
            self.state.close()
        for context in self.__dict__.get("pipelines", ()):
            context.__exit__()

    @property
    def store(self) -> Store:
        """The store as its file says."""
        return self.loaded.store

    @property
    def declared(self) -> Store:
        """Whose jobs run in this context."""
        return self.store

    @property
    def artifacts_uri(self) -> str:
        """The root of the store's artefacts."""
        return _artifacts_uri(self.store)

    @cached_property
    def artifacts(self) -> ObjectStore:
        """The store of the artefacts."""
        return artifacts_of(self.store, self.connections)

    @cached_property
    def objects(self) -> ObjectStore:
        """The claim-check objects, with the right to list and read."""
        return open_store(self.store.uri, self.connections.get(self.store.connections.store))

    @cached_property
    def inventory_reports(self) -> ObjectStore:
        """Where S3 puts its inventory reports. Raises ConfigError where the store is listed instead."""
        if self.store.inventory.manifest is None:
            raise ConfigError(f"{self.store.name}: inventory.source is {self.store.inventory.source}")
        named = self.store.connections
        return open_store(self.store.inventory.manifest, self.connections.get(named.inventory or named.store))

    @cached_property
    def state(self) -> StateStore:
        """The state store, brought to the newest schema. Raises ConfigError where none is configured."""
        return open_state(state_url(self.store, self.connections))

    @cached_property
    def pipelines(self) -> tuple[ReplayContext, ...]:
        """The pipelines whose changefeeds write to the store, in the order of its file."""
        return tuple(ReplayContext(listed, self.connections) for listed in self.loaded.pipelines)

    def for_deletion(self) -> ObjectStore:
        """The claim-check objects, with the right to delete: only for the execution of a plan.

        Raises ConfigError where the policy is never, or the connection was not resolved.
        """
        if self.store.deletion.policy == "never":
            raise ConfigError(f"{self.store.name}: nothing may be deleted: deletion.policy is never")
        return open_store(self.store.uri, self.connections.get(self.store.connections.deletion))


def artifacts_of(store: Store, connections: Connections) -> ObjectStore:
    """Where the artefacts of *store* are."""
    return open_store(_artifacts_uri(store), connections.get(store.connections.artifacts))


def _artifacts_uri(store: Store) -> str:
    return f"{store.artifacts.rstrip('/')}/{store.name}"


def store_connection_ids(loaded: LoadedStore) -> tuple[str, ...]:
    """Every connection that a reconciliation resolves: the store's, but for the one that may delete and Spark's, and those of its
    pipelines."""
    named = loaded.store.connections
    ids = {named.store, named.inventory, named.artifacts, named.state}
    for listed in loaded.pipelines:
        ids.update(connection_ids(listed.pipeline))
    return tuple(sorted(conn_id for conn_id in ids if conn_id is not None))
