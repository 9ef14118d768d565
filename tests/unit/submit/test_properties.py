"""What Spark is told of a job, beside what the pipeline's file says."""

from pathlib import Path

import pytest

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.config.target_kinds import read_section
from ticdc_replay.submit.properties import ROWS_IN_PYTHON, job_properties

PIPELINE = """\
name: shop
changefeed: {{sink_uri: "kafka://broker:9092/shop?protocol=open-protocol", timezone: UTC}}
connections: {{kafka: kafka}}
artifacts: file:///tmp/artifacts
schedule: {{start: "2026-03-02T00:00:00Z"}}
spark: {{conf: {conf}}}
targets: [{{name: warehouse, type: postgres, connection: warehouse}}]
"""


@pytest.fixture
def declared(tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    (tmp_path / "shop.yaml").write_text(PIPELINE.format(conf=getattr(request, "param", "{}")))
    return load_pipeline(tmp_path / "shop.yaml").pipeline


@pytest.mark.parametrize(("job", "expected"), [("decode", "true"), ("scan", "true"), ("load", "false")])
def test_slow_tasks_are_started_twice_where_that_has_no_effect(declared: Pipeline, job: str, expected: str) -> None:
    assert job_properties(declared, job)["spark.speculation"] == expected


@pytest.mark.parametrize("declared", ['{spark.speculation: "false"}'], indirect=True)
def test_a_pipeline_may_turn_it_off(declared: Pipeline) -> None:
    assert job_properties(declared, "decode")["spark.speculation"] == "false"


@pytest.mark.parametrize("declared", ['{spark.speculation: "true"}'], indirect=True)
def test_a_load_never_does_its_work_twice(declared: Pipeline) -> None:
    assert job_properties(declared, "load")["spark.speculation"] == "false"


@pytest.mark.parametrize(
    "declared",
    ["{spark.pyspark.python: /usr/bin/python3.11, spark.pyspark.driver.python: /opt/driver/python}"],
    indirect=True,
)
def test_a_pipeline_may_name_the_driver_s_python(declared: Pipeline) -> None:
    assert job_properties(declared, "load")["spark.pyspark.driver.python"] == "/opt/driver/python"


LAKES: list[dict[str, object]] = [
    {"type": "iceberg", "name": "lake", "catalog": "lakehouse", "ledger": "file:///ledger"},
    {"type": "delta", "name": "lake", "path": "file:///lake", "ledger": "file:///ledger"},
]
OTHERS: list[dict[str, object]] = [
    {"type": "parquet", "name": "files", "uri": "file:///files"},
    {"type": "postgres", "name": "warehouse", "connection": "warehouse"},
]


@pytest.mark.parametrize(
    ("job", "target"), [("decode", None), ("scan", None), *(("load", target) for target in OTHERS)], ids=str
)
def test_where_the_jvm_only_hands_out_tasks_it_compiles_little(
    declared: Pipeline, job: str, target: dict[str, object] | None
) -> None:
    properties = job_properties(declared, job, None if target is None else read_section(target))
    assert properties.items() >= ROWS_IN_PYTHON.items()
    assert properties["spark.executor.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1"
    assert properties["spark.sql.codegen.wholeStage"] == "false"


@pytest.mark.parametrize(
    ("job", "target"),
    [("reconcile", None), *((job, target) for job in ("load", "maintain", "mirror") for target in LAKES)],
    ids=str,
)
def test_where_rows_pass_through_the_jvm_it_compiles_well(
    declared: Pipeline, job: str, target: dict[str, object] | None
) -> None:
    assert not job_properties(declared, job, None if target is None else read_section(target)).keys() & ROWS_IN_PYTHON


@pytest.mark.parametrize("declared", ["{spark.sql.codegen.wholeStage: 'true'}"], indirect=True)
def test_a_pipeline_may_have_its_plans_compiled(declared: Pipeline) -> None:
    assert job_properties(declared, "decode")["spark.sql.codegen.wholeStage"] == "true"


@pytest.mark.parametrize("declared", ["{spark.driver.defaultJavaOptions: -Xss4m}"], indirect=True)
def test_a_pipeline_may_say_what_every_jvm_is_started_with(declared: Pipeline) -> None:
    assert job_properties(declared, "decode")["spark.driver.defaultJavaOptions"] == "-Xss4m"
