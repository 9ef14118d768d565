"""The page docs/mirror.md, run command by command: a dump and a topic become a mirror that equals its upstream."""

import datetime
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest
import yaml
from confluent_kafka import Producer
from typer.testing import CliRunner

from demo.embedded_stack.kafka import Kafka
from tests.support import mariadb
from tests.support.dumpling_files import read_table, write_dump
from tests.support.open_protocol import Columns, columns, message, resolved, row
from tests.support.verified import upstream
from tests.support.waiting import PATIENCE_S
from ticdc_replay.cli.main import app
from ticdc_replay.domain import tso
from ticdc_replay.domain.connections import Connection

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "mirror.md"
_BLOCK = re.compile(r"^```(yaml|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CREATE = "CREATE TABLE orders (id bigint PRIMARY KEY, v varchar(100), price decimal(10,2))"


def at(clock: str) -> int:
    """The TSO of *clock* on the day of the page."""
    return tso.from_ms(_ms(clock))


def _ms(clock: str) -> int:
    return int(datetime.datetime.fromisoformat(f"2026-03-01T{clock}:00+00:00").timestamp() * 1000)


def cells(key: int, value: str, price: str) -> Columns:
    return columns(key, value, price={"t": 246, "f": 0, "v": price})


class Shop:
    """The upstream, in which changes are made as they are sent: a statement, and the message that TiCDC would send."""

    def __init__(self, server: Connection, producer: Producer, topic: str) -> None:
        self.server, self._producer, self.topic = server, producer, topic
        mariadb.execute(server, "CREATE DATABASE shop CHARSET utf8mb4", "USE shop", CREATE)

    def change(self, clock: str, statement: str, **images: Columns) -> None:
        mariadb.execute(self.server, "USE shop", statement)
        self._send(clock, row(at(clock), table="orders", schema="shop", **images))

    def resolve(self, *clocks: str) -> None:
        for clock in clocks:
            self._send(clock, resolved(at(clock)))
        assert self._producer.flush(PATIENCE_S) == 0

    def _send(self, clock: str, event: tuple[bytes, bytes]) -> None:
        sent = message([event], 0)
        self._producer.produce(self.topic, sent.value, key=sent.key, partition=0, timestamp=_ms(clock))

    def rows(self) -> list[tuple[Any, ...]]:
        with closing(
            pymysql.connect(
                host=self.server.host,
                port=self.server.port or 0,
                user=self.server.login,
                password=self.server.password or "",
                charset="utf8mb4",
            )
        ) as session:
            cursor = session.cursor()
            cursor.execute("SELECT id, v, price FROM shop.orders ORDER BY id")
            return list(cursor.fetchall())


class Reader:
    """Someone who follows the page in *folder*, with servers of their own in place of those that it names."""

    def __init__(self, folder: Path, shop: Shop, topic: str, kafka: Kafka, warehouse: str) -> None:
        self.folder, self.shop, self.topic, self._kafka = folder, shop, topic, kafka
        self.warehouse = warehouse
        self.exit_codes: list[tuple[str, int]] = []

    def follow(self, part: str) -> str:
        """Write the files of *part*, and run its commands; what they say."""
        said = ""
        for kind, text in _BLOCK.findall(part):
            if kind == "yaml":
                name = text.splitlines()[0].removeprefix("# ")
                (self.folder / name).write_text(self._adapted(text))
                continue
            for command in text.replace("\\\n", " ").splitlines():
                said += self._run(shlex.split(command))
        return said

    def _run(self, command: Sequence[str]) -> str:
        program, *arguments = command
        if program == "ticdc-replay":
            done = CliRunner().invoke(app, arguments, catch_exceptions=False)
            self.exit_codes.append((arguments[0], done.exit_code))
            return done.output
        if program == "tiup":
            assert arguments[0] == "dumpling"
            assert arguments[arguments.index("-f") + 1] == "shop.*"
            table = read_table(self.shop.server, "shop", "orders")
            write_dump(self.folder / arguments[arguments.index("-o") + 1], [table], at("12:10"))
            return ""
        subprocess.run(command, cwd=self.folder, check=True, timeout=PATIENCE_S)
        return ""

    def _adapted(self, text: str) -> str:
        declared = yaml.safe_load(text)
        if "changefeed" in declared:
            declared["artifacts"] = (self.folder / "artifacts").as_uri()
            declared["changefeed"]["sink_uri"] = declared["changefeed"]["sink_uri"].replace("shop-changes", self.topic)
            return yaml.safe_dump(declared)
        for connection in declared.values():
            match connection["conn_type"]:
                case "kafka":
                    connection["extra"] = {"bootstrap.servers": self._kafka.bootstrap}
                case "sqlite":
                    connection["host"] = str(self.folder / "state.db")
                case "tidb":
                    connection.update(
                        host=self.shop.server.host,
                        port=self.shop.server.port,
                        login=self.shop.server.login,
                        password=self.shop.server.password,
                    )
                case "postgres":
                    place = urlsplit(self.warehouse)
                    connection.update(
                        host=place.hostname,
                        port=place.port,
                        schema=place.path[1:],
                        login=place.username,
                        password=place.password,
                    )
        return yaml.safe_dump(declared)

    def mirrored(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.warehouse) as connection:
            return connection.execute("SELECT id, v, price FROM shop.orders ORDER BY id").fetchall()


@pytest.fixture
def shop(
    tmp_path: Path,
    mariadb_programs: mariadb.Programs,
    producer: Producer,
    make_topic: Callable[..., str],
) -> Iterator[Shop]:
    with upstream(tmp_path / "upstream", mariadb_programs) as server:
        yield Shop(server, producer, make_topic(1, {"retention.ms": "-1"}))


def parts() -> dict[str, str]:
    """The page by the titles of its parts."""
    _, *found = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return {title: text for title, _, text in (part.partition("\n") for part in found)}


def test_a_reader_of_the_page_has_a_verified_mirror(
    shop: Shop, kafka: Kafka, make_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    reader, page = Reader(folder, shop, shop.topic, kafka, make_database()), parts()
    mariadb.execute(
        shop.server, "USE shop", *(f"INSERT INTO orders VALUES ({id}, 'old {id}', {id}.50)" for id in range(1, 1001))
    )
    shop.resolve("11:56", "11:58", "12:01")
    shop.change("12:05", "UPDATE orders SET v = 'five' WHERE id = 5", new=cells(5, "five", "5.50"))
    shop.resolve("12:06")
    reader.follow(page["1. Describe it"])
    reader.follow(page["2. Base load"])
    assert reader.mirrored() == shop.rows()
    shop.change("12:20", "UPDATE orders SET v = 'seven' WHERE id = 7", new=cells(7, "seven", "7.50"))
    shop.change("12:30", "DELETE FROM orders WHERE id = 9", old=cells(9, "old 9", "9.50"))
    shop.change(
        "12:40",
        "INSERT INTO orders VALUES (2000, 'é', NULL)",
        new=columns(2000, "é", price={"t": 246, "f": 0, "v": None}),
    )
    shop.resolve("12:50", "13:00", "13:01")
    reader.follow(page["3. Replay windows"])
    assert reader.mirrored() == shop.rows()
    assert "equal" in reader.follow(page["4. Verify"])
    assert {code for _, code in reader.exit_codes} == {0}
    with psycopg.connect(reader.warehouse) as connection:
        connection.execute("UPDATE shop.orders SET v = 'wrong' WHERE id = 7")
    reader.exit_codes.clear()
    assert "changed" in reader.follow(page["4. Verify"])
    assert reader.exit_codes == [("verify", 1)]
    reader.exit_codes.clear()
    said = reader.follow(page["5. If a row differs"])
    assert "warehouse" in said
    assert reader.exit_codes == [("trace", 0), ("run", 0), ("verify", 0), ("mirror", 0), ("verify", 0)]
    assert reader.mirrored() == shop.rows()
    with psycopg.connect(reader.warehouse) as connection:
        connection.execute("UPDATE shop.orders SET v = 'wrong' WHERE id = 8")
    reader.exit_codes.clear()
    assert "`ticdc-replay mirror rebuild` does" in " ".join(reader.follow(page["5. If a row differs"]).split())
    assert [code for _, code in reader.exit_codes] == [0, 0, 1, 0, 0]
    assert reader.mirrored() == shop.rows()
