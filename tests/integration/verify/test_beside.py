"""A mirror is compared with one that was filled beside it, in the same database or lake."""

import datetime
from decimal import Decimal

import pytest

from tests.support.changelogs import Changelog, delete, put
from tests.support.target_rigs import LakeRig
from tests.support.verified import Verified
from ticdc_replay import __version__
from ticdc_replay.changefeed.rules import Dispatch
from ticdc_replay.drivers.verify import run_here
from ticdc_replay.jobspec import ComparedMirror, VerifyJob
from ticdc_replay.verify import compare, readers
from ticdc_replay.verify.findings import TableVerification

pytestmark = pytest.mark.integration

COLUMNS = (
    "id bigint PRIMARY KEY, d decimal(12,4), w decimal(50,2), x double, f float, s varchar(20), l longtext, b varbinary(9), "
    "m datetime(6), i timestamp(6) NULL, t time(6), y date, e enum('a','b'), n int unsigned"
)
MOMENT = datetime.datetime(2026, 3, 1, 10, 20, 30, 500)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test with few rows cuts ranges, too."""
    monkeypatch.setattr(compare, "_SMALL", 20)
    monkeypatch.setattr(readers, "SMALL", 20)


def beside(verified: Verified, at: int) -> TableVerification:
    """The comparison of the mirror with that in the schema ``beside``."""
    context = verified.context
    [section] = context.pipeline.targets
    job = VerifyJob(
        library_version=__version__,
        pipeline="pipeline",
        artifacts=context.artifacts_uri,
        artifacts_connection=None,
        target=section.model_dump(mode="json", by_alias=True),
        beside={**verified.rig.section, "schema": "beside"},
        source_connection=None,
        dispatch=Dispatch(),
        mirrors=(ComparedMirror(verified.table, at, ""),),
        selection=(),
        pipeline_tables=(),
        share=1.0,
        range_rows=100,
        restart=True,
        asked_at_ms=0,
    )
    (found,) = run_here(job, verified.connections, verified.rig.sql, lambda line: None).tables
    context.artifacts.delete(job.result)
    return found


def test_rows_that_differ_from_those_beside_are_found(verified: Verified) -> None:
    schema = verified.create(COLUMNS)
    rows = [
        put(
            50,
            id=number,
            d=Decimal(number) / 8,
            w=f"{number}.25",
            x=number * 1.1e-5,
            f=number * 0.5,
            s=f"é {number}" if number % 3 else None,
            l="x" * number,
            b=bytes([number % 256]),
            m=MOMENT + datetime.timedelta(microseconds=number * 10_000),
            i=MOMENT.replace(tzinfo=datetime.UTC),
            t=(number - 100) * 1_000_001,
            y=MOMENT.date(),
            e="ab"[number % 2],
            n=2**32 - 1 - number,
        )
        for number in range(300)
    ]
    for number, (window, changes) in enumerate([((1, 100), rows), ((100, 200), [delete(150, id=7)])]):
        changelog = Changelog(verified.folder / "artifacts", *window, str(number)).rows(schema, changes)
        verified.rig.load(changelog)
        verified.rig.load(changelog, target={"schema": "beside"})
    found = beside(verified, 199)
    assert (found.outcome, found.problems, found.columns) == ("equal", (), 14)
    assert (found.findings.source_rows, found.findings.mirror_rows) == (299, 299)
    verified.mirror("UPDATE {t}.t SET s = 'other' WHERE id = 100")
    verified.mirror("UPDATE {t}.t SET x = 0.5, n = NULL WHERE id = 101")
    verified.mirror("DELETE FROM {t}.t WHERE id = 299")
    verified.mirror("UPDATE {t}.t SET id = 1000 WHERE id = 0")
    changelog = Changelog(verified.folder / "artifacts", 200, 300, "newer").rows(schema, [put(250, id=5, s="newer")])
    verified.rig.load(changelog)
    copied = set()
    if isinstance(verified.rig, LakeRig):
        verified.mirror("INSERT INTO {t}.t SELECT * FROM {t}.t WHERE id = 200")
        copied = {("extra", ("200",), ())}
    differences = {(each.kind, each.key, each.columns) for each in beside(verified, 199).findings.differences}
    assert differences == copied | {
        ("changed", ("100",), ("s",)),
        ("changed", ("101",), ("x", "n")),
        ("missing", ("299",), ()),
        ("missing", ("0",), ()),
        ("extra", ("1000",), ()),
    }


def test_of_constants_only_the_name_of_the_pipeline_is_compared(verified: Verified) -> None:
    """A row that a window brought may be in a newer base, too, and each load has its own time."""
    constants = {"_at": "loaded_at", "_window": "window", "_run": "run", "_pipeline": "pipeline"}
    verified.rig.section |= {"shape": [{"constants": constants}]}
    schema = verified.create("id bigint PRIMARY KEY, s varchar(20)")
    rows = [put(50, id=number, s="x") for number in range(5)]
    window = Changelog(verified.folder / "artifacts", 1, 60, "a").rows(schema, rows)
    newer = Changelog(verified.folder / "artifacts", 40, 100, "b").rows(schema, rows)
    verified.rig.load(window)
    verified.rig.load(newer, target={"schema": "beside"})
    found = beside(verified, 99)
    assert (found.outcome, found.problems, found.columns) == ("equal", (), 3)
    verified.mirror("UPDATE {t}.t SET _pipeline = 'other' WHERE id = 3")
    assert [(each.key, each.columns) for each in beside(verified, 99).findings.differences] == [
        (("3",), ("_pipeline",))
    ]
    verified.mirror("ALTER TABLE {t}.t DROP COLUMN _run")
    assert beside(verified, 99).problems == ("the mirror has no column _run",)


@pytest.mark.parametrize("key", ["k bit(10)", "k year", "k bit(10), y year"], ids=str)
def test_bits_and_years_are_compared_as_numbers(verified: Verified, key: str) -> None:
    """MySQL shows a BIT as raw bytes, and takes 50 for the year 2050."""
    names = [part.split()[0] for part in key.split(", ")]
    schema = verified.create(f"{key}, b bit(8), w bit(64), n year, s varchar(20), PRIMARY KEY ({', '.join(names)})")
    numbers = [0, *range(1901, 2156)] if key == "k year" else range(0, 1_024, 3)
    rows = [
        put(50, k=number, b=number % 256, w=2**64 - 1 - number, n=2155 - number % 200, s="x", y=2026 * (number % 2))
        for number in numbers
    ]
    changelog = Changelog(verified.folder / "artifacts", 1, 100, "a").rows(schema, rows)
    verified.rig.load(changelog)
    verified.rig.load(changelog, target={"schema": "beside"})
    found = beside(verified, 99)
    assert (found.outcome, found.problems, found.columns) == ("equal", (), len(names) + 4)
    assert (found.findings.source_rows, found.findings.ranges > 1) == (len(rows), True)
    first, second, third = (2000, 2001, 2155) if key == "k year" else (201, 600, 1_023)
    verified.mirror(f"UPDATE {{t}}.t SET b = 129 WHERE k = {first}")
    verified.mirror(f"UPDATE {{t}}.t SET w = 18446744073709551615, n = 1999 WHERE k = {second}")
    verified.mirror(f"DELETE FROM {{t}}.t WHERE k = {third}")
    differences = {(each.kind, each.key[0], each.columns) for each in beside(verified, 99).findings.differences}
    assert differences == {
        ("changed", str(first), ("b",)),
        ("changed", str(second), ("w", "n")),
        ("missing", str(third), ()),
    }
