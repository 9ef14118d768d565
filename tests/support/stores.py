"""Every kind of store on a real server, behind one shape, for tests of what they have in common."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from demo.embedded_stack.emulators import Azurite, Emulator, FakeGcs
from demo.embedded_stack.errors import MissingToolError
from demo.embedded_stack.s3 import S3Server
from tests.support import gcs_xml
from ticdc_replay.domain.connections import Connection
from ticdc_replay.storage import ObjectStore, open_store


class Place(NamedTuple):
    """A bucket of its own. ``connection`` opens it; ``missing`` is the URI of a bucket that does not exist."""

    root: str
    connection: Connection | None
    missing: str | None
    front: gcs_xml.Front | None = None

    def open(self, prefix: str = "some/prefix") -> ObjectStore:
        """The store below *prefix*."""
        return open_store(f"{self.root}/{prefix}".rstrip("/"), self.connection)


KINDS = ("file", "s3", "versitygw", "gcs", "azure")


def of_folder(folder: Path) -> Place:
    """A folder of this machine."""
    return Place(folder.as_uri(), None, None)


def of_s3(server: S3Server, make_bucket: Callable[[], str]) -> Place:
    """A bucket in *server*."""
    extra = {"endpoint_url": server.endpoint, "region_name": server.region}
    connection = Connection("store_test", "aws", login=server.access_key, password=server.secret_key, extra=extra)
    return Place(f"s3://{make_bucket()}", connection, "s3://no-such-bucket-here")


@contextmanager
def of_gcs(server: FakeGcs) -> Iterator[Place]:
    """A bucket in *server*, behind what it lacks of Google's XML API."""
    with gcs_xml.before(server) as front:
        bucket = f"bucket-{uuid.uuid4().hex[:12]}"
        server.make_bucket(bucket)
        yield Place(f"gs://{bucket}", gcs_connection(front.endpoint), "gs://no-such-bucket-here", front)


def gcs_connection(endpoint: str, **extra: Any) -> Connection:
    """To a server at *endpoint*, as the service account of the tests."""
    fields = {"endpoint_url": endpoint, "keyfile_dict": gcs_xml.KEYFILE} | extra
    return Connection("store_test", "google_cloud_platform", extra=fields)


def of_azure(server: Azurite) -> Place:
    """A container in *server*."""
    container = f"container-{uuid.uuid4().hex[:12]}"
    server.make_bucket(container)
    return Place(f"az://{container}", azure_connection(server), "az://no-such-container-here")


def azure_connection(server: Azurite, **fields: Any) -> Connection:
    """To the account of *server*, by its key."""
    values: dict[str, Any] = {"host": server.url, "login": server.account, "password": server.key}
    return Connection("store_test", "wasb", **(values | fields))


def started(server: Emulator) -> Emulator:
    """*server* once it runs. Where it is not fetched the test is skipped, or fails if TICDC_REPLAY_REQUIRE_EMULATORS is set."""
    try:
        server.start()
    except MissingToolError as error:
        if os.environ.get("TICDC_REPLAY_REQUIRE_EMULATORS"):
            raise
        pytest.skip(str(error))
    return server
