"""Masked values, planted in Kafka: after ``ticdc-replay run`` they are in the changelog, and nowhere else."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pyarrow.parquet as pq
import pytest
import yaml

from tests.integration.cli.conftest import Shop

pytestmark = pytest.mark.integration

SALT = "planted-salt-of-32-characters-xx"
PLANTED = ("planted-hash", "planted-null", "planted-fixed", "planted-gone", SALT)
SHAPE = {
    "exclude": ["gone*"],
    "mask": {"email*": "hash", "note*": "null", "phone*": {"fixed": "***"}},
    "rename": {"email": "contact"},
    "cast": {"age*": "bigint"},
    "salt_connection": "salts",
    "constants": {"_window": "window"},
}


def found_in(path: Path) -> list[str]:
    """The planted values in the file *path*."""
    content = path.read_bytes()
    if path.suffix == ".parquet":
        content += repr(pq.read_table(path, partitioning=None).to_pylist()).encode()
    return [text for text in PLANTED if text.encode() in content]


def test_a_masked_value_is_in_no_target_report_quarantine_and_log(
    make_shop: Callable[..., Shop], make_database: Callable[[], str], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dsn = make_database()
    parts = urlsplit(dsn)
    targets = [
        {"name": "lake", "type": "parquet", "uri": (tmp_path / "lake").as_uri(), "shape": [SHAPE]},
        {"name": "mart", "type": "postgres", "connection": "mart", "schema": "raw_{schema}", "shape": [SHAPE]},
    ]
    shop = make_shop(runner="local", targets=targets, policies={"target_value": "quarantine"})
    connections = tmp_path / "connections.yaml"
    known = yaml.safe_load(connections.read_text())
    known["salts"] = {"conn_type": "generic", "password": SALT}
    known["mart"] = {
        "conn_type": "postgres",
        "host": parts.hostname,
        "port": parts.port,
        "login": parts.username,
        "password": parts.password,
        "schema": parts.path.lstrip("/"),
    }
    connections.write_text(yaml.safe_dump(known))
    texts = {"email": "planted-hash", "note": "planted-null", "phone": "planted-fixed", "gone": "planted-gone"}
    shop.feed.seconds(40, 60)
    shop.feed.row(0, 70, texts={**texts, "age": "41"})
    shop.feed.row(0, 71, texts={**texts, "age": "unknown"})
    shop.feed.resolved(75)
    shop.feed.seconds(121, 140)
    done = shop.command("run", window=shop.window)
    assert done.exit_code in (0, 2), (done.output, done.exception)
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT id, phone, age FROM raw_shop.orders").fetchall()
        tables = connection.execute(
            "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables "
            "WHERE table_schema !~ '^(pg_|information_schema)'"
        ).fetchall()
        content = "".join(str(connection.execute(f"SELECT * FROM {name}").fetchall()) for (name,) in tables)  # type: ignore[call-overload]
    assert rows == [(70_000, "***", 41)]
    logged = "".join(capfd.readouterr()) + done.output
    assert not [text for text in PLANTED if text in content or text in logged]
    files = [Path(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    by_file = {str(path.relative_to(tmp_path)): found_in(path) for path in files if path != connections}
    holding = {name for name, found in by_file.items() if found}
    assert {name for name in holding if not name.startswith("artifacts/shop/runs/")} == set()
    assert holding, "the changelog has them: the search finds what is there"
    assert any("/quarantine/" in name and "loads/" in name for name in by_file), "a cast failed"
