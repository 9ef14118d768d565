"""Who S3 is asked as: roles are assumed as the connection says, and again before their credentials expire."""

import multiprocessing
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError

from demo.embedded_stack.s3 import MotoServer
from tests.support import sts as fake
from tests.support.s3_proxy import Proxy
from tests.support.sts import BASE_KEY, BASE_SECRET, EXTERNAL_ID, ROLE, WEB_TOKEN, Sts
from tests.support.waiting import PATIENCE_S
from ticdc_replay.domain.connections import Connection
from ticdc_replay.domain.errors import AuthenticationError, TransientError
from ticdc_replay.storage import ObjectStore, open_store

pytestmark = pytest.mark.integration


@pytest.fixture
def sts() -> Iterator[Sts]:
    with fake.sts() as server:
        yield server


@pytest.fixture
def gate(s3: MotoServer, sts: Sts) -> Iterator[Proxy]:
    with fake.gate(s3, sts) as proxy:
        yield proxy


@pytest.fixture
def root(make_bucket: Callable[[], str]) -> str:
    return f"s3://{make_bucket()}/some"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No identity of whoever runs the tests."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("TEST_RUN", uuid.uuid4().hex)


def connection(gate: Proxy, sts: Sts, login: str | None = BASE_KEY, **extra: Any) -> Connection:
    fixed = {
        "endpoint_url": gate.endpoint,
        "region_name": "us-east-1",
        "service_config": {"sts": {"endpoint_url": sts.url}},
        "role_arn": ROLE,
    }
    return Connection("aws_role", "aws", login=login, password=BASE_SECRET if login else None, extra=fixed | extra)


def use(store: ObjectStore, name: str) -> None:
    """Whatever a task does with a store: by boto3, by obstore and by Arrow."""
    store.put(name, b"x")
    assert store.get(name) == store.fetch(name) == b"x"
    assert [found.name for found in store.list(name)] == [name]
    filesystem, root = store.arrow_filesystem()
    pq.write_table(pa.table({"a": [1, 2]}), f"{root}/{name}.parquet", filesystem=filesystem)
    assert pq.read_table(f"{root}/{name}.parquet", filesystem=filesystem, partitioning=None).num_rows == 2


def expire(sts: Sts) -> None:
    """Credentials of less than ten minutes are asked for again at each request; obstore does so after a tenth of a second."""
    time.sleep(0.3)
    sts.expire()


def test_a_role_is_assumed_again_while_its_store_is_in_use(gate: Proxy, sts: Sts, root: str) -> None:
    sts.lifetime_s = 6
    store = open_store(root, connection(gate, sts, external_id=EXTERNAL_ID))
    filesystem, folder = store.arrow_filesystem()
    use(store, "first")
    (first, *_) = sts.issued
    assert set(sts.calls) == {"AssumeRole"}
    for number in range(2):
        time.sleep(max(0.0, (sts.issued[-1].expires - datetime.now(UTC)).total_seconds()) + 0.2)
        before = len(sts.issued)
        use(store, f"later-{number}")
        assert pq.read_table(f"{folder}/first.parquet", filesystem=filesystem, partitioning=None).num_rows == 2
        assert len(sts.issued) > before
    assert gate.refused == 0, "no request went out with credentials that had expired"
    old = boto3.client(
        "s3",
        endpoint_url=gate.endpoint,
        region_name="us-east-1",
        aws_access_key_id=first.key_id,
        aws_secret_access_key=first.secret,
        aws_session_token=first.token,
    )
    with pytest.raises(ClientError, match="ExpiredToken"):
        old.list_objects_v2(Bucket=root.split("/")[2])


def test_a_role_that_lives_long_is_assumed_once_for_all_stores_of_a_process(gate: Proxy, sts: Sts, root: str) -> None:
    sts.lifetime_s = 3600
    for number in range(3):
        use(open_store(root, connection(gate, sts, external_id=EXTERNAL_ID)), f"object-{number}")
    assert sts.calls == ["AssumeRole"]


def _task(root: str, connection: Connection, name: str) -> None:
    use(open_store(root, connection), name)
    time.sleep(6.5)
    use(open_store(root, connection), f"{name}-later")


def test_other_processes_get_the_connection_and_assume_the_role_themselves(gate: Proxy, sts: Sts, root: str) -> None:
    sts.lifetime_s = 6
    store_connection = connection(gate, sts, assume_role_kwargs={"ExternalId": EXTERNAL_ID})
    use(open_store(root, store_connection), "driver")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        running = pool.starmap_async(_task, [(root, store_connection, f"task-{number}") for number in range(2)])
        running.get(PATIENCE_S)
    assert gate.refused == 0
    assert {"task-0-later", "task-1-later"} <= {found.name for found in open_store(root, store_connection).list()}


def test_another_external_id_is_refused_with_what_to_check(gate: Proxy, sts: Sts, root: str) -> None:
    store = open_store(root, connection(gate, sts, external_id="another"))
    with pytest.raises(AuthenticationError, match=r"aws_role.*AssumeRole.*check role_arn, external_id") as raised:
        store.put("a", b"")
    assert BASE_SECRET not in str(raised.value)
    assert not [path for _, path in gate.requests], "nothing was asked without the role"


def test_an_sts_that_is_away_is_worth_a_retry(
    gate: Proxy, sts: Sts, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    store = open_store(root, connection(gate, sts, external_id=EXTERNAL_ID))
    sts.away = True
    with pytest.raises(TransientError, match="AssumeRole"):
        store.put("a", b"")
    sts.away = False
    use(store, "a")


def test_a_pod_s_token_is_the_identity(
    gate: Proxy, sts: Sts, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(WEB_TOKEN)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    store = open_store(root, connection(gate, sts, login=None, assume_role_method="assume_role_with_web_identity"))
    use(store, "a")
    expire(sts)
    use(store, "b")
    assert set(sts.calls) == {"AssumeRoleWithWebIdentity"}
    assert len(sts.calls) >= 2
    assert gate.refused == 0


def test_the_web_identity_that_a_cluster_sets_in_the_environment_needs_no_field(
    gate: Proxy, sts: Sts, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(WEB_TOKEN)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
    extra = {"endpoint_url": gate.endpoint, "region_name": "us-east-1"}
    store = open_store(root, Connection("aws_pod", "aws", extra=extra))
    use(store, "a")
    expire(sts)
    use(store, "b")
    assert set(sts.calls) == {"AssumeRoleWithWebIdentity"}
    assert gate.refused == 0


def test_a_profile_that_assumes_a_role_is_an_identity(gate: Proxy, sts: Sts, root: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        f"[profile base]\naws_access_key_id = {BASE_KEY}\naws_secret_access_key = {BASE_SECRET}\n"
        f"[profile replay]\nsource_profile = base\nrole_arn = {ROLE}\nexternal_id = {EXTERNAL_ID}\nregion = us-east-1\n"
        f"services = here\n[services here]\nsts =\n  endpoint_url = {sts.url}\n"
    )
    extra = {"endpoint_url": gate.endpoint, "profile_name": "replay"}
    store = open_store(root, Connection("aws_profile", "aws", extra=extra))
    use(store, "a")
    expire(sts)
    use(store, "b")
    assert len(sts.calls) >= 2
    assert gate.refused == 0


def test_a_token_file_that_is_gone_is_an_error_of_credentials(
    gate: Proxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/token")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    extra = {"endpoint_url": gate.endpoint, "region_name": "us-east-1"}
    store = open_store(root, Connection("aws_pod", "aws", extra=extra))
    for ask in (lambda: store.get("a"), lambda: store.fetch("a"), lambda: store.info("a")):
        with pytest.raises(AuthenticationError, match="/no/such/token"):
            ask()


@pytest.mark.parametrize("in_profile", [False, True], ids=["environment", "profile"])
def test_an_endpoint_that_only_botocore_reads_is_that_of_arrow_and_obstore_too(
    s3: MotoServer, root: str, in_profile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    if in_profile:
        here = f"[profile here]\nservices = here\n[services here]\ns3 =\n  endpoint_url = {s3.endpoint}\n"
        (tmp_path / "config").write_text(here)
        monkeypatch.setenv("AWS_PROFILE", "here")
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    store = open_store(root)
    use(store, "a")
    assert [found.name for found in store.list()] == ["a", "a.parquet"]
