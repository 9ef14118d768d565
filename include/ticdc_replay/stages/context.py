"""What every stage of one run needs, opened when it is first used."""

from functools import cached_property

from ticdc_replay.changefeed.config import Changefeed
from ticdc_replay.config.load import LoadedPipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.store import Store
from ticdc_replay.domain.connections import Connection, Connections
from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.kafka.settings import KafkaSettings
from ticdc_replay.registry import open_registry
from ticdc_replay.schemas.lookup import WriterSchemas
from ticdc_replay.state import StateStore, open_state
from ticdc_replay.storage import ObjectStore, open_store


class ReplayContext:
    """One pipeline with its connections resolved. Use as a context manager: leaving it closes what was opened."""

    def __init__(self, loaded: LoadedPipeline, connections: Connections) -> None:
        self.loaded = loaded
        self.connections = connections

    def __enter__(self) -> "ReplayContext":
        return self

    def __exit__(self, *_: object) -> None:
        if "state" in self.__dict__:
            self.state.close()

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline as its file says."""
        return self.loaded.pipeline

    @property
    def changefeed(self) -> Changefeed:
        """What the changefeed's configuration means for reading."""
        return self.loaded.changefeed

    @property
    def declared(self) -> Pipeline:
        """Whose jobs run in this context."""
        return self.pipeline

    @property
    def artifacts_uri(self) -> str:
        """The root of the pipeline's artefacts."""
        return f"{self.pipeline.artifacts.rstrip('/')}/{self.pipeline.name}"

    @cached_property
    def artifacts(self) -> ObjectStore:
        """The store of the pipeline's artefacts."""
        return open_store(self.artifacts_uri, self.connections.get(self.pipeline.connections.artifacts))

    @cached_property
    def claim_check(self) -> ObjectStore | None:
        """The store of the claim-check objects, None where the changefeed has none."""
        if self.changefeed.claim_check_uri is None:
            return None
        return open_store(self.changefeed.claim_check_uri, self.connections.get(self.pipeline.connections.claim_check))

    @cached_property
    def writer_schemas(self) -> WriterSchemas:
        """The schema registry; one without any schema where the pipeline names none."""
        return open_registry(self.connections.get(self.pipeline.connections.schema_registry))

    @cached_property
    def kafka(self) -> KafkaSettings:
        """How Kafka is reached."""
        connection = self.connections[self.pipeline.connections.kafka]
        return KafkaSettings.from_connection(connection, self.changefeed.max_message_bytes, self.loaded.access.hint())

    @cached_property
    def state(self) -> StateStore:
        """The state store, brought to the newest schema. Raises ConfigError where none is configured."""
        return open_pipeline_state(self.pipeline, self.connections)

    @cached_property
    def places(self) -> dict[str, str]:
        """Where the content of each target lies now, by the target's name (``TargetSection.place``)."""
        return {target.name: target.place for target in self.pipeline.targets}

    def place_of(self, target: str) -> str:
        """The place of the target called *target*. Raises ConfigError where the pipeline has none of this name any more."""
        if target not in self.places:
            raise ConfigError(f"pipeline {self.pipeline.name} no longer has a target {target!r}")
        return self.places[target]


def connection_ids(pipeline: Pipeline) -> tuple[str, ...]:
    """Every connection that a run of *pipeline* resolves: all it names but Spark's, which only the submitting task needs."""
    named = pipeline.connections
    ids = [
        named.kafka,
        named.claim_check,
        named.schema_registry,
        named.source,
        named.dumps,
        named.artifacts,
        named.state,
    ]
    ids += [conn_id for target in pipeline.targets for conn_id in target.connection_ids]
    return tuple(sorted({conn_id for conn_id in ids if conn_id is not None}))


def open_pipeline_state(pipeline: Pipeline, connections: Connections) -> StateStore:
    """The state store of *pipeline*, brought to the newest schema. Raises ConfigError where none is configured."""
    state = open_state(state_url(pipeline, connections))
    state.coverage.settle_places(pipeline.name, {target.name: target.place for target in pipeline.targets})
    return state


def state_url(declared: Pipeline | Store, connections: Connections) -> str:
    """The SQLAlchemy URL of the state store of *declared*: the connection's database, else a SQLite file beside the
    artefacts. Raises ConfigError without a connection if the artefacts are not in a local folder."""
    connection = connections.get(declared.connections.state)
    if connection is not None:
        return _database_url(connection)
    root = declared.artifacts.rstrip("/")
    if not root.startswith("file://"):
        raise ConfigError(
            f"{declared.name}: artifacts are at {root}, so the state store needs a database: "
            "set connections.state to a connection of type postgres"
        )
    return f"sqlite:///{root.removeprefix('file://')}/state.db"


def _database_url(connection: Connection) -> str:
    from sqlalchemy import URL

    if connection.conn_type == "sqlite":
        return f"sqlite:///{connection.host or ''}"
    if connection.conn_type in ("postgres", "postgresql"):
        url = URL.create(
            "postgresql+psycopg",
            connection.login,
            connection.password,
            connection.host,
            connection.port,
            connection.schema,
        )
        return url.render_as_string(hide_password=False)
    raise ConfigError(
        f"connection {connection.conn_id!r} has type {connection.conn_type!r}; the state store takes postgres or sqlite"
    )
