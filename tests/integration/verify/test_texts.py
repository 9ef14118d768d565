"""Both engines print one canonical text for one value, and different ones for different values."""

import math
import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.support.examples import examples
from tests.support.target_rigs import PostgresRig
from ticdc_replay.domain.column_types import ColumnType
from ticdc_replay.domain.connections import Connection
from ticdc_replay.large_messages.source_session import SourceSession
from ticdc_replay.large_messages.source_statements import Statement
from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.lake.compared_cells import SETTINGS, LakeColumn
from ticdc_replay.targets.postgres.comparison import PostgresComparisons
from ticdc_replay.targets.postgres.comparison import float_text as postgres_text
from ticdc_replay.targets.postgres.settings import PostgresSettings
from ticdc_replay.verify.forms import Form
from ticdc_replay.verify.mysql import MySqlColumn, at_least, at_most, bits_text, float_text, key_text
from ticdc_replay.verify.side import ComparedColumn

pytestmark = pytest.mark.integration

DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
BITS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]).filter(math.isfinite)
SHORT = st.builds(
    lambda digits, exponent: float(f"{digits}e{exponent}"), st.integers(-(10**6), 10**6), st.integers(-320, 300)
)


def texts_of(source: Connection, settings: PostgresSettings, numbers: Sequence[float]) -> list[tuple[str, str]]:
    """The texts that MariaDB and PostgreSQL print of each of *numbers*."""
    session, mirror = SourceSession(source), PostgresComparisons(settings)
    try:
        rows = " UNION ALL ".join(
            f"SELECT {at} i, {number!r}{'' if 'e' in repr(number) else 'e0'} x" for at, number in enumerate(numbers)
        )
        first = session.query(Statement(f"SELECT {float_text('x')} FROM ({rows}) t ORDER BY i"))
        values = ", ".join(f"({at}, '{number!r}'::float8)" for at, number in enumerate(numbers))
        second = mirror.query("print", f"SELECT {postgres_text('x')} FROM (VALUES {values}) t (i, x) ORDER BY i")
        return [(one.decode(), other) for (one,), (other,) in zip(first, second, strict=True)]
    finally:
        session.close()
        mirror.close()


@settings(max_examples=examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=st.lists(st.one_of(DOUBLES, BITS, SHORT), min_size=20, max_size=60))
def test_a_double_has_one_text_and_another_double_another(
    source: Connection, postgres: PostgresSettings, numbers: list[float]
) -> None:
    texts = texts_of(source, postgres, numbers)
    # Which of two shortest texts an engine takes may differ; then the client compares, which is rare.
    unlike = [(number, pair) for number, pair in zip(numbers, texts, strict=True) if pair[0] != pair[1]]
    assert not unlike, unlike
    for side in range(2):
        assert len({pair[side] for pair in texts}) == len(set(numbers))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("2026-03-01 10:00:00.500000", "2026-03-01 10:00:00.5"),
        ("2026-03-01 10:00:00.000001", "2026-03-01 10:00:00.000001"),
        ("2026-03-01 10:00:00.000000", "2026-03-01 10:00:00"),
        ("0999-12-31 20:00:10.000000", "0999-12-31 20:00:10"),
        ("0000-00-00 00:00:00.000000", "0000-00-00 00:00:00"),
        ("2026-00-00 00:00:00.250000", "2026-00-00 00:00:00.25"),
    ],
)
def test_a_moment_has_no_zeros_at_the_end(source: Connection, moment: str, text: str) -> None:
    session = SourceSession(source)
    column = MySqlColumn("d", ColumnType("datetime", scale=6), Form.MOMENT, nullable=False)
    try:
        moments = f"(SELECT CAST('{moment}' AS DATETIME(6)) d) t"
        assert session.query(Statement(f"SELECT {key_text(column)} FROM {moments}")) == ((text.encode(),),)
    finally:
        session.close()


@settings(max_examples=examples(0.1), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(numbers=st.lists(st.one_of(DOUBLES, BITS, SHORT), min_size=100, max_size=300))
def test_a_double_is_written_as_the_same_integers_by_spark(
    source: Connection, lake_spark: SparkSession, numbers: list[float]
) -> None:
    session = SourceSession(source)
    try:
        rows = " UNION ALL ".join(
            f"SELECT {at} i, {number!r}{'' if 'e' in repr(number) else 'e0'} x" for at, number in enumerate(numbers)
        )
        first = [text for (text,) in session.query(Statement(f"SELECT {bits_text('x')} FROM ({rows}) t ORDER BY i"))]
    finally:
        session.close()
    column = LakeColumn(0, ComparedColumn("x", "x", ColumnType("double"), True, Form.BITS), "double")
    values = ", ".join(f"({at}, {number!r}D)" for at, number in enumerate(numbers))
    selected = ", ".join(["*", *column.scaled()])
    statement = f"SELECT i, {column.text()} AS x FROM (SELECT {selected} FROM VALUES {values} AS t (i, x)) ORDER BY i"
    second = [row["x"].encode() for row in SparkSql(lake_spark).run(statement, SETTINGS)]
    assert first == second
    assert len(set(first)) == len(set(numbers)), "another number has another text"


TEXTS = st.text(st.sampled_from("ab \t\x01~é😀"), max_size=4)


@settings(max_examples=examples(1.0))
@given(bound=TEXTS.filter(bool), texts=st.lists(TEXTS, min_size=1, max_size=40))
def test_what_an_index_finds_holds_every_text_of_a_range(source: Connection, bound: str, texts: list[str]) -> None:
    low, high = at_least(bound), at_most(bound)
    session = SourceSession(source)
    try:
        for collation in ("utf8mb4_bin", "utf8mb4_nopad_bin"):
            for text in texts:
                comparison = f"CONVERT(%s USING utf8mb4) COLLATE {collation}"
                [(above, below)] = session.query(
                    Statement(f"SELECT {comparison} >= %s, {comparison} <= %s", (text, low or "", text, high or text))
                )
                if text.encode() >= bound.encode():
                    assert low is None or above == b"1", (collation, text)
                if text.encode() < bound.encode():
                    assert high is None or below == b"1", (collation, text)
    finally:
        session.close()


@pytest.fixture
def postgres(make_database: Callable[[], str]) -> PostgresSettings:
    return PostgresSettings(PostgresRig(make_database()).connections["target"])
