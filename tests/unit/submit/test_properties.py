"""What Spark is told of a job, beside what the pipeline's file says."""

from pathlib import Path

import pytest

from ticdc_replay.config.load import load_pipeline
from ticdc_replay.config.pipeline import Pipeline
from ticdc_replay.submit.properties import job_properties

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


@pytest.mark.parametrize("job", ["decode", "scan", "load"])
def test_where_the_jvm_only_hands_out_tasks_it_compiles_quickly(declared: Pipeline, job: str) -> None:
    properties = job_properties(declared, job)
    for jvm in ("driver", "executor"):
        assert properties[f"spark.{jvm}.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1"


def test_where_rows_pass_through_the_jvm_it_compiles_well(declared: Pipeline) -> None:
    assert not [name for name in job_properties(declared, "reconcile") if name.endswith("JavaOptions")]


@pytest.mark.parametrize("declared", ["{spark.driver.defaultJavaOptions: -Xss4m}"], indirect=True)
def test_a_pipeline_may_say_what_every_jvm_is_started_with(declared: Pipeline) -> None:
    assert job_properties(declared, "decode")["spark.driver.defaultJavaOptions"] == "-Xss4m"
