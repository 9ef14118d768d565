"""Spark reads every type of the changelog as what it is."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.every_type import write_one_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_reads_every_type_as_what_it_is(tmp_path: Path, spark: SparkSession) -> None:
    file = write_one_row(tmp_path)
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        frame = spark.read.parquet(str(file))
        found = {field.name: field.dataType.simpleString() for field in frame.schema["after"].dataType}
        row = frame.selectExpr(
            "after.`u big`", "after.`u dec`", "after.datetime", "date_format(after.ts, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
            "after.time", "after.date", "_exact['after.date']", "_absent", "before", "after.text", "_key", "after.bit",
        ).first()  # fmt: skip
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found == {
        "tiny": "tinyint", "u tiny": "smallint", "u int": "bigint", "u big": "decimal(20,0)", "float": "float",
        "double": "double", "u dec": "decimal(38,10)", "dec65": "string", "bit": "decimal(20,0)", "year": "smallint",
        "date": "date", "time": "bigint", "datetime": "timestamp_ntz", "ts": "timestamp", "text": "string",
        "blob": "binary", "enum": "string", "raw enum": "int", "set": "string", "raw set": "decimal(20,0)",
        "json": "string",
    }  # fmt: skip
    assert list(row) == [
        Decimal((1 << 64) - 1), Decimal("-1234567890123456789012345678.0123456789"),
        datetime.datetime(1, 1, 1, 0, 0, 0, 1), "2038-01-19 03:14:07.999999", -3_020_399_000_001, None,
        bytearray(b"0000-00-00"), ["after.tiny"], None, "é\0\U0001f600", bytearray(b"0123456789abcdef"),
        Decimal((1 << 64) - 1),
    ]  # fmt: skip
