"""What Spark SQL says of errors shows no secret, and all else."""

import pytest
from pyspark.sql import SparkSession

from ticdc_replay.spark.sql import SparkSql
from ticdc_replay.targets.sql import SqlError

pytestmark = pytest.mark.integration


def test_no_error_shows_a_secret_of_which_one_may_be_empty_or_a_part_of_another(lake_spark: SparkSession) -> None:
    sql = SparkSql(lake_spark)
    secrets = {f"tests.secret.{number}": secret for number, secret in enumerate(["", "abc", "abcdef", "cde"])}
    sql.set(secrets, secrets)
    with pytest.raises(SqlError, match=r"\[UNRESOLVED_COLUMN.* `x\*\*\*y\*\*\*` ") as caught:
        sql.run("SELECT xabcdefyabc")
    assert caught.value.condition.startswith("UNRESOLVED_COLUMN")
    assert "def" not in str(caught.value)
