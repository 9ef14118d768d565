"""Fixtures that all tests share: real servers, started when the first test asks for one and stopped at the end.

The servers are those of ``demo.embedded_stack``. They are shared by a whole run: a test takes topics, buckets and databases
of its own from the factories here and leaves alone what it did not make.
"""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.support.draw import drawn, kinds
from tests.support.examples import NIGHTLY, load_profile
from tests.support.packages import ACME_LINES, install
from tests.support.waiting import PATIENCE_S

load_profile()

# A shell lets what it starts in the background ignore Ctrl-C, and whatever is started from there. Tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:  # imported where they are used, so that a run of unit tests alone starts fast
    from confluent_kafka import Producer as KafkaProducer
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

    from demo.embedded_stack.emulators import Azurite, FakeGcs
    from demo.embedded_stack.kafka import Kafka
    from demo.embedded_stack.postgres import Postgres
    from demo.embedded_stack.s3 import MotoServer, S3Server, VersityGateway
    from tests.support.capture_sets import CaptureSets
    from tests.support.mariadb import Programs
    from tests.support.yarn import Yarn
    from ticdc_replay.domain.connections import Connection


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """pytest-xdist's question how ``--dist loadfile`` is meant."""
    from tests.support.distribution import DearFirst

    return DearFirst(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whatever measures growth is slow: it does the same many times. The server of TiDB takes minutes to build."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    if code is not None and "assert_linear" in code.co_names:
        item.add_marker(pytest.mark.slow)
    if not kinds(item).isdisjoint(("tidb", "from tidb")):
        item.add_marker(pytest.mark.nightly)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is ``nightly``, and what is not drawn, unless ``HYPOTHESIS_PROFILE`` is nightly or ``make test-matrix``
    runs."""
    if NIGHTLY or config.getoption("markexpr") == "matrix":
        return
    by_day = [item for item in items if not item.get_closest_marker("nightly")]
    run = drawn(by_day, config.getoption("randomly_seed", None))
    kept = set(run)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = run


class MakeTopic(Protocol):
    def __call__(
        self, partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None
    ) -> str: ...


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """Where the servers of this run keep data and logs."""
    from demo.embedded_stack.stack import temporary_folder

    folder = temporary_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def java_home() -> Path:
    """A JAVA_HOME, exported for Spark too, as are options that suit the small jobs of tests."""
    from demo.embedded_stack import class_archive, java

    home = java.find_home()
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join((*java.SHORT_LIVED, *class_archive.options())))
    return home


@pytest.fixture(scope="session")
def yarn(servers_folder: Path, java_home: Path) -> Iterator[Yarn]:
    """A YARN of one node: ``.address`` of its manager, ``.configuration`` for Hadoop's clients, ``.properties`` for Spark."""
    from tests.support import yarn

    with yarn.running(servers_folder / "yarn") as running:
        yield running


@pytest.fixture(scope="session")
def kafka(servers_folder: Path) -> Iterator[Kafka]:
    """A Kafka broker: ``.bootstrap``; asking for SCRAM: ``.sasl_bootstrap`` (with mechanism, username, password)."""
    from demo.embedded_stack.kafka import Kafka

    with Kafka(servers_folder / "kafka") as server:
        yield server


@pytest.fixture(scope="session")
def producer(kafka: Kafka) -> Iterator[KafkaProducer]:
    """Sends to ``kafka``, in order and nothing twice. One for all tests: each new one would wait half a second for its id."""
    from confluent_kafka import Producer

    made = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    yield made
    made.flush(PATIENCE_S)


@pytest.fixture(scope="session")
def s3(servers_folder: Path) -> Iterator[MotoServer]:
    """An S3 server: ``.endpoint``, ``.access_key``, ``.secret_key``, ``.region``. It checks no signatures."""
    from demo.embedded_stack.s3 import MotoServer

    with MotoServer(servers_folder / "s3") as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(servers_folder: Path) -> Iterator[VersityGateway]:
    """An S3 server that checks signatures and whose objects can be made old; skips where it can't be had."""
    from demo.embedded_stack.errors import MissingToolError
    from demo.embedded_stack.s3 import VersityGateway

    server = VersityGateway(servers_folder / "versitygw")
    try:
        server.start()
    except MissingToolError as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def fake_gcs(servers_folder: Path) -> Iterator[FakeGcs]:
    """An emulator of Google Cloud Storage; skips where it is not fetched (``make emulators``)."""
    from demo.embedded_stack.emulators import FakeGcs
    from tests.support.stores import started

    server = FakeGcs(servers_folder / "fake-gcs")
    started(server)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def azurite(servers_folder: Path) -> Iterator[Azurite]:
    """An emulator of Azure Blob Storage; skips where it is not fetched (``make emulators``)."""
    from demo.embedded_stack.emulators import Azurite
    from tests.support.stores import started

    server = Azurite(servers_folder / "azurite")
    started(server)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres(servers_folder: Path) -> Iterator[Postgres]:
    """A PostgreSQL server: ``.host``, ``.port``, ``.user``, ``.password``, ``.database``, ``.dsn``, ``.dsn_of(database)``."""
    from demo.embedded_stack.postgres import Postgres

    with Postgres(servers_folder / "postgres") as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_programs() -> Iterator[Programs]:
    """The programs of a MariaDB server, the peer for what is MySQL's in an upstream; skips where they don't exist."""
    from tests.support import mariadb

    found = mariadb.programs()
    if found is None:
        pytest.skip(
            f"rows of the upstream are read again from MariaDB {mariadb.VERSION}, whose jar has programs for Linux on x86-64 only"
        )
    with mariadb.one_tls_context():
        yield found


@pytest.fixture(scope="session")
def mysql_server(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A MariaDB server for mirrors, or the server that ``OWN_MYSQL`` names."""
    from tests.support import mariadb

    own = os.environ.get(mariadb.OWN_MYSQL)
    if own is not None:
        yield mariadb.named(own)
        return
    programs = request.getfixturevalue("mariadb_programs")
    with mariadb.running(request.getfixturevalue("tmp_path_factory").mktemp("mariadb"), programs) as connection:
        yield connection


@pytest.fixture(scope="session")
def tidb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A TiDB server for mirrors."""
    from tests.support import tidb

    with tidb.running(tmp_path_factory.mktemp("tidb"), tidb.required()) as connection:
        yield connection


@pytest.fixture
def make_topic(kafka: Kafka) -> MakeTopic:
    """Makes a topic in ``kafka`` and returns its name."""
    from confluent_kafka.admin import AdminClient

    from tests.support.topics import create_topic

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def make(partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None) -> str:
        topic = name or f"topic-{uuid.uuid4().hex[:12]}"
        create_topic(admin, topic, partitions, config)
        return topic

    return make


def s3_client_of(server: S3Server) -> S3Client:
    """A boto3 client of *server*."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name=server.region,
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 2}),
    )


@pytest.fixture
def s3_client(s3: MotoServer) -> S3Client:
    """A boto3 client of ``s3``."""
    return s3_client_of(s3)


@pytest.fixture
def make_bucket(s3_client: S3Client) -> Callable[[], str]:
    """Makes an empty bucket in ``s3`` and returns its name."""

    def make() -> str:
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        s3_client.create_bucket(Bucket=bucket)
        return bucket

    return make


@pytest.fixture
def make_database(postgres: Postgres) -> Iterator[Callable[[], str]]:
    """Makes an empty database in ``postgres``, dropped after the test, and returns its DSN (``postgresql://…``)."""
    made: list[str] = []

    def make() -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        made.append(name)
        return postgres.create_database(name)

    yield make
    for name in made:
        postgres.drop_database(name)


@pytest.fixture
def made_up_target(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a package installed that brings a kind of target of its own."""
    monkeypatch.syspath_prepend(install(ACME_LINES, tmp_path_factory.mktemp("site")))


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> CaptureSets:
    """The captures of a protocol: ``captures("avro")`` holds ``<classic|new>/<variant>`` (see tests/captures/README.md)."""
    from tests.support.capture_sets import CaptureSets

    return CaptureSets(tmp_path_factory.mktemp("captures"))


@pytest.fixture(scope="session")
def open_captures(captures: CaptureSets) -> Path:
    """The folder with the Open Protocol captures and ``expected``."""
    return captures("open")


@pytest.fixture(scope="session")
def spark(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores, where a failed task is tried twice.

    ``TICDC_REPLAY_TEST_SPARK=connect`` gives a session at a Spark Connect server of that kind, without lake tables.
    """
    from tests.support.lake_spark import lake_session, stop

    if os.environ.get("TICDC_REPLAY_TEST_SPARK") == "connect":
        from tests.support.connect import session_at_a_server

        with session_at_a_server(tmp_path_factory.mktemp("connect")) as session:
            yield session
        return
    session = lake_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    stop(session)


@pytest.fixture(scope="session")
def lake_spark(spark: SparkSession) -> SparkSession:
    """A session of the same Spark for tests of lake tables: its settings, catalogs and temporary views are its own.

    It is shared by all these tests: a test names its catalog as no other does.
    """
    return spark.newSession()
