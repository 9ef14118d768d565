"""What re-drives of a window's quarantine bring into the Parquet target, also where they bring it again."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.changelogs import Changelog, Row, delete, put, table
from tests.unit.targets.parquet.test_files import INT, NO_KEY, ORDERS, TEXT, current, run
from ticdc_replay.changelog.files.version_order import VersionOrder
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.tables import TableSchema
from ticdc_replay.targets import last_versions

WIDER = table("shop.orders", {"id": INT, "v": TEXT, "w": TEXT}, valid_from=15)


class Window:
    """A window whose quarantine is re-driven again and again."""

    def __init__(
        self, folder: Path, *rows: Row, schema: TableSchema = ORDERS, order: VersionOrder = "commit_ts"
    ) -> None:
        self.lake, self.order, self._folder = folder / "lake", order, folder / "artifacts"
        self.first = Changelog(self._folder, 0, 100, order=order).rows(schema, rows, files=2)
        self.count = 0
        run(self.first, self.lake)

    def redrive(self, *rows: Row, schema: TableSchema = ORDERS, offset: int = 1000) -> Any:
        """Bring *rows*, the first of which stands behind *offset*; the table's report."""
        self.count += 1
        changelog = Changelog(self._folder, 0, 100, f"redrive {self.count}", order=self.order)
        changelog.offset, changelog.redrives = offset, self.first.run_hash
        (report,) = run(changelog.rows(schema, rows), self.lake).tables
        return report

    def rows(self, kind: str, name: str = "orders") -> list[tuple[Any, ...]]:
        found = []
        for file in current(self.lake, name)[kind]:
            for row in pq.read_table(self.lake / file["name"], partitioning=None).to_pylist():
                found.append((row["_op"], row["_commit_ts"], *(row["after"] or row["before"]).values()))
        return sorted(found, key=lambda row: (row[1], repr(row)))


def test_a_row_that_is_re_driven_again_stands_once_in_the_changelog(tmp_path: Path) -> None:
    window = Window(tmp_path, put(10, id=1, v="a"), put(20, id=1, v="b"), put(30, id=2, v="a"))
    for _ in range(3):
        report = window.redrive(put(15, id=1, v="x"), put(40, id=3, v="x"))
        assert (report.events, report.keys, report.folded) == (5, 3, 2)
        assert window.rows("changelog") == [
            ("insert", 10, 1, "a"),
            ("insert", 15, 1, "x"),
            ("insert", 20, 1, "b"),
            ("insert", 30, 2, "a"),
            ("insert", 40, 3, "x"),
        ]
        assert window.rows("fold") == [("insert", 20, 1, "b"), ("insert", 30, 2, "a"), ("insert", 40, 3, "x")]


def test_a_row_of_the_window_that_a_re_drive_brings_again_stands_once(tmp_path: Path) -> None:
    window = Window(tmp_path, put(10, id=1, v="a"), delete(20, id=1), put(20, id=2, v="b"), put(30, id=3, v="c"))
    report = window.redrive(delete(20, id=1), put(20, id=1, v="new"), put(30, id=3, v="c"))
    assert (report.events, report.keys, report.folded) == (5, 3, 2)
    assert window.rows("changelog") == [
        ("insert", 10, 1, "a"),
        ("delete", 20, 1, None),
        ("insert", 20, 1, "new"),
        ("insert", 20, 2, "b"),
        ("insert", 30, 3, "c"),
    ]
    assert window.rows("fold") == [("insert", 20, 1, "new"), ("insert", 20, 2, "b"), ("insert", 30, 3, "c")]


def test_only_what_is_new_in_a_re_drive_is_added(tmp_path: Path) -> None:
    window = Window(tmp_path, put(10, id=1, v="a"))
    window.redrive(put(20, id=2, v="b"), put(30, id=3, v="c"))
    assert window.redrive(put(30, id=3, v="c"), put(40, id=4, v="d")).events == 4
    assert [row[1] for row in window.rows("changelog")] == [10, 20, 30, 40]
    assert [row[1] for row in window.rows("fold")] == [10, 20, 30, 40]


def test_of_copies_with_other_columns_the_one_that_the_fold_takes_stays(tmp_path: Path) -> None:
    window = Window(tmp_path, put(10, id=1, v="a"))
    window.redrive(put(20, id=2, v="b"))
    assert window.redrive(put(20, id=2, v="b", w="w"), schema=WIDER).events == 2
    assert window.rows("changelog") == window.rows("fold") == [("insert", 10, 1, "a"), ("insert", 20, 2, "b", "w")]


def test_a_key_that_was_typed_otherwise_is_the_same_row(tmp_path: Path) -> None:
    short, wide = (
        table("shop.orders", {"id": ColumnType("decimal", length=9, scale=scale, declared=True)}) for scale in (1, 2)
    )
    window = Window(tmp_path, put(10, id=Decimal("1.0")), schema=short)
    window.redrive(put(20, id=Decimal("1.5")), schema=short)
    assert window.redrive(put(20, id=Decimal("1.50")), schema=wide).events == 2


def test_rows_whose_keys_share_a_hash_are_two(tmp_path: Path) -> None:
    def row(number: int) -> Row:
        return put(20, id=number, v="a")._replace(key_hash=b"x" * 16)

    window = Window(tmp_path, row(1))
    assert window.redrive(row(2)).events == 2
    assert window.redrive(row(2)).events == 2
    assert window.rows("changelog") == window.rows("fold") == [("insert", 20, 1, "a"), ("insert", 20, 2, "a")]


def test_rows_without_key_are_told_apart_by_their_place(tmp_path: Path) -> None:
    window = Window(tmp_path, put(10, line="a"), put(10, line="a"), schema=NO_KEY)
    for _ in range(2):
        assert window.redrive(put(10, line="a"), put(20, line="b"), schema=NO_KEY).events == 4
    assert window.redrive(put(10, line="a"), schema=NO_KEY, offset=0).events == 4, "the first row once more"
    assert window.rows("changelog", "log") == [("insert", 10, "a")] * 3 + [("insert", 20, "b")]


def test_of_windows_by_offset_only_what_stands_at_one_place_is_one(tmp_path: Path) -> None:
    window = Window(tmp_path, put(10, id=1, v="a"), order="place")
    for _ in range(2):
        assert window.redrive(put(20, id=1, v="a")).events == 2
    assert len(window.rows("changelog")) == 2


def test_repeats_among_many_rows_are_found_whatever_row_groups_they_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_versions, "BUCKET_ROWS", 7)
    rows = [put(10 + at, id=at % 13, v="a") for at in range(60)]
    window = Window(tmp_path, *rows)
    assert window.redrive(*rows[17:40:3], put(90, id=1, v="b")).events == 61
    assert window.redrive(*rows[10:50:7], put(90, id=1, v="b")).events == 61
    assert len(window.rows("changelog")) == 61
    assert len(window.rows("fold")) == 13


def test_keys_that_no_fold_can_compare_stop_no_changelog(tmp_path: Path) -> None:
    def of(type_: str, moment: int) -> TableSchema:
        return table("shop.orders", {"id": ColumnType(type_, length=20, declared=True)}, valid_from=moment)

    dates, texts = of("date", 0), of("varchar", 15)
    folder, lake = tmp_path / "artifacts", tmp_path / "lake"
    first = Changelog(folder, 0, 100).rows(dates, [put(10, id=date(2026, 1, 1))])
    run(first, lake, fold=False)
    for name in ("one", "two"):
        again = Changelog(folder, 0, 100, name)
        again.redrives = first.run_hash
        again.rows(dates, [put(10, id=date(2026, 1, 1))]).rows(texts, [put(20, id="a")])
        assert run(again, lake, fold=False).tables[0].events == 2
